//! The program's own code in memory: starting needs much of it once, calls need little of it again and again.
#![allow(unsafe_code, reason = "letting go of pages has no safe wrapper; its use says why it is sound")]

use std::{fs, io, ops::Range};

/// Lets go of the pages of the program's code that starting needed. The ones that calls need come back from the file by
/// themselves, a few microseconds each time; the others no longer count as memory of this process.
pub fn let_go_of_start() -> io::Result<()> {
    let program = fs::read_link("/proc/self/exe")?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let Some(code) = maps.lines().find_map(|line| code_of(line, program.to_str()?)) else { return Ok(()) };
    // SAFETY: these pages are mapped from the program's file, not writable, and the same when they are read again.
    let done = unsafe {
        libc::madvise(std::ptr::with_exposed_provenance_mut(code.start), code.end - code.start, libc::MADV_DONTNEED)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where a line of `/proc/self/maps` says that the program's code is.
fn code_of(line: &str, program: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    if words.next()? != "r-xp" || !line.ends_with(program) {
        return None;
    }
    let address = |text| usize::from_str_radix(text, 16).ok();
    Some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_runs_and_cannot_be_written() {
        let line = |mode| format!("013fe000-03de5000 {mode} 011fd000 fe:00 1234    /opt/helve");
        assert_eq!(code_of(&line("r-xp"), "/opt/helve"), Some(0x013f_e000..0x03de_5000));
        for other in ["r--p", "rw-p", "rwxp"] {
            assert_eq!(code_of(&line(other), "/opt/helve"), None, "{other}");
        }
        assert_eq!(code_of(&line("r-xp"), "/usr/lib/libc.so.6"), None);
    }

    #[test]
    fn what_runs_goes_on_running() {
        let_go_of_start().unwrap();
        assert_eq!(format!("{:>4}", 6 * 7), "  42");
    }
}
