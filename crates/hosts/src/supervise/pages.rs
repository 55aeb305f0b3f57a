//! The program's own code in memory: starting needs much of it once, calls need little of it again and again.
#![allow(unsafe_code, reason = "letting go of pages has no safe wrapper; each use says why it is sound")]

use std::{fs, io, ops::Range};

/// Lets go of memory where this process has more than so many bytes of it: of the pages of its code and constants, and of
/// what was freed. The ones that calls need come back from the file by themselves, a few microseconds each time; the others
/// no longer count as memory of this process.
pub fn let_go_beyond(most: usize) -> io::Result<()> {
    if most > 0 && resident()? <= most {
        return Ok(());
    }
    give_back();
    let_go_of_code()
}

/// How many bytes of memory this process has.
fn resident() -> io::Result<usize> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let pages: Option<usize> = pages.split_ascii_whitespace().nth(1).and_then(|it| it.parse().ok());
    // SAFETY: takes a number and answers with one.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages.unwrap_or(0) * usize::try_from(size).unwrap_or(4096))
}

/// What was allocated and freed goes back to the system.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number, locks what it looks at, and gives back only what nobody has.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn let_go_of_code() -> io::Result<()> {
    let program = fs::read_link("/proc/self/exe")?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    for part in program.to_str().map(|program| unchanging(&maps, program)).unwrap_or_default() {
        // SAFETY: these pages are mapped from the program's file, never writable, and the same when they are read again.
        let done = unsafe {
            libc::madvise(std::ptr::with_exposed_provenance_mut(part.start), part.end - part.start, libc::MADV_DONTNEED)
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Where `/proc/self/maps` says that the program's code is, and what is before it. What comes behind it and cannot be
/// written was written while the program was loaded.
fn unchanging(maps: &str, program: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    for line in maps.lines().filter(|line| line.ends_with(program)) {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(mode)) = (words.next(), words.next()) else { break };
        let address = |text| usize::from_str_radix(text, 16).ok();
        let range = range.split_once('-').and_then(|(start, end)| Some(address(start)?..address(end)?));
        parts.extend(range.filter(|_| matches!(mode, "r--p" | "r-xp")));
        if mode != "r--p" {
            break;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_at_the_start_stays() {
        let line = |range: &str, mode: &str, file: &str| format!("{range} {mode} 00000000 fe:00 1234    {file}\n");
        let ours = [("00200000-013fe000", "r--p"), ("013fe000-03de5000", "r-xp"), ("03de6000-03fc3000", "r--p")];
        let mut maps: String = ours.iter().map(|(range, mode)| line(range, mode, "/opt/helve")).collect();
        maps += &line("7f0000000000-7f0000026000", "r--p", "/usr/lib/libc.so.6");
        assert_eq!(unchanging(&maps, "/opt/helve"), [0x0020_0000..0x013f_e000, 0x013f_e000..0x03de_5000]);
        assert!(unchanging(&line("1000-2000", "rwxp", "/opt/helve"), "/opt/helve").is_empty());
        assert!(unchanging(&maps, "/opt/other").is_empty());
    }

    #[test]
    fn what_runs_goes_on_running() {
        let kept = vec![7_u8; 1 << 20];
        let before = resident().unwrap();
        let_go_beyond(usize::MAX).unwrap();
        let_go_beyond(0).unwrap();
        assert!(before > kept.len() && kept.iter().all(|it| *it == 7));
        assert_eq!(format!("{:>4}", 6 * 7), "  42");
    }
}
