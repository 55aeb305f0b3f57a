//! The baseline: an MCP server that does the minimum work of a call, with plain system calls.
//!
//! It finds fields by name instead of parsing, and checks, bounds and records nothing. The cost of a real server
//! beyond this is what it does for its user.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::Path,
    process::{Command, Stdio},
};

const TOOLS: [&str; 7] = ["echo", "read", "write", "edit", "ls", "glob", "sh"];

fn main() -> io::Result<()> {
    let mut input = BufReader::with_capacity(1 << 16, io::stdin().lock());
    let mut output = io::stdout().lock();
    let (mut line, mut answer) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let Some(id) = number(&line, "id") else { continue };
        answer.clear();
        write!(answer, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":")?;
        match string(&line, "method").as_slice() {
            b"initialize" => answer.extend_from_slice(
                b"{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},\
                  \"serverInfo\":{\"name\":\"floor\",\"version\":\"1\"}}",
            ),
            b"tools/list" => write_tool_list(&mut answer)?,
            b"tools/call" => {
                let done = call(&line);
                let text = done.as_ref().map_or_else(|error| error.to_string().into_bytes(), Clone::clone);
                write!(answer, "{{\"isError\":{},\"content\":[{{\"type\":\"text\",\"text\":\"", done.is_err())?;
                quoted(&mut answer, &text);
                answer.extend_from_slice(b"\"}]}");
            }
            _ => answer.extend_from_slice(b"{}"),
        }
        answer.extend_from_slice(b"}\n");
        output.write_all(&answer)?;
        output.flush()?;
    }
}

fn write_tool_list(answer: &mut Vec<u8>) -> io::Result<()> {
    let tools = TOOLS.map(|name| format!("{{\"name\":\"{name}\",\"inputSchema\":{{\"type\":\"object\"}}}}"));
    write!(answer, "{{\"tools\":[{}]}}", tools.join(","))
}

fn call(line: &[u8]) -> io::Result<Vec<u8>> {
    let text = |key: &str| String::from_utf8_lossy(&string(line, key)).into_owned();
    let mut out = Vec::new();
    match text("name").as_str() {
        "echo" => out = string(line, "message"),
        "read" => {
            let mut file = File::open(text("path"))?;
            file.seek(SeekFrom::Start(number(line, "offset").unwrap_or(0)))?;
            file.take(number(line, "limit").unwrap_or(u64::MAX)).read_to_end(&mut out)?;
        }
        // Atomic, as a real server must be: a reader sees the old or the new file.
        "write" => replace(text("path").as_ref(), &string(line, "content"))?,
        "edit" => {
            let (path, old, new) = (text("path"), string(line, "old"), string(line, "new"));
            let whole = fs::read(&path)?;
            let at = find_bytes(&whole, &old).ok_or(io::ErrorKind::NotFound)?;
            replace(path.as_ref(), &[&whole[..at], &new, &whole[at + old.len()..]].concat())?;
        }
        "ls" => {
            for entry in fs::read_dir(text("path"))? {
                writeln!(out, "{}", entry?.file_name().display())?;
            }
        }
        "glob" => walk(text("path").as_ref(), &text("suffix"), &mut out)?,
        "sh" => out = Command::new("/bin/sh").arg("-c").arg(text("command")).stdin(Stdio::null()).output()?.stdout,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    }
    Ok(out)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes)?;
    fs::rename(new, path)
}

fn walk(folder: &Path, suffix: &str, out: &mut Vec<u8>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), suffix, out)?;
        } else if entry.file_name().as_encoded_bytes().ends_with(suffix.as_bytes()) {
            writeln!(out, "{}", entry.path().display())?;
        }
    }
    Ok(())
}

/// Where one text is in another.
fn find_bytes(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    loop {
        from += text.get(from..)?.iter().position(|it| *it == first)?;
        if text[from..].starts_with(wanted) {
            return Some(from);
        }
        from += 1;
    }
}

/// What stands after a name.
fn value_after<'a>(line: &'a [u8], key: &str, opening: &str) -> Option<&'a [u8]> {
    let name = format!("\"{key}\":{opening}");
    line.get(find_bytes(line, name.as_bytes())? + name.len()..)
}

fn number(line: &[u8], key: &str) -> Option<u64> {
    let rest = value_after(line, key, "")?;
    let digits: Vec<u8> = rest.iter().copied().take_while(u8::is_ascii_digit).collect();
    String::from_utf8(digits).ok()?.parse().ok()
}

/// A text; empty where there is none.
fn string(line: &[u8], key: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), value_after(line, key, "\"").unwrap_or_default());
    while let Some(run) = rest.iter().position(|it| matches!(it, b'"' | b'\\')) {
        out.extend_from_slice(&rest[..run]);
        if rest[run] == b'"' {
            break;
        }
        match rest.get(run + 1) {
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(other) => out.push(*other),
            None => break,
        }
        rest = &rest[run + 2..];
    }
    out
}

fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    let mut from = 0;
    for (at, byte) in text.iter().enumerate() {
        let sign: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\t' => b"\\t",
            b'\r' => b"\\r",
            0..32 => b" ",
            _ => continue,
        };
        out.extend_from_slice(&text[from..at]);
        out.extend_from_slice(sign);
        from = at + 1;
    }
    out.extend_from_slice(&text[from..]);
}
