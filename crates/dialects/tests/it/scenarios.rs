//! Runs every page in `scenarios/`: write the files, make the calls, compare the replies and the files after.
//!
//! `UPDATE=1 cargo test -p helve-dialects --test it scenarios` writes what it got into the pages; read the diff.
//! `UPDATE=grep` writes into that page alone.
//!
//! A page is Markdown. A heading of the second level clears the desk. Blocks: `file NAME` writes a file (`\e` at its
//! end: no final newline), `call DIALECT TOOL` makes a call with the block as arguments, `reply` (or `reply error`)
//! shows what came back (`call DIALECT/ROLE TOOL` calls in a role), `git` runs git, a line a command, `disk NAME` shows
//! a file afterwards, `ran ID` lets a schedule have run with the block as output. Random ids are written as `<id-1>`,
//! `<id-2>` … `conversation ID USER` keeps a session: its title, and a line a message.

use std::{fs, path::Path};

use crate::desk::Desk;

#[tokio::test]
async fn scenarios() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut pages: Vec<_> = fs::read_dir(folder).unwrap().map(|page| page.unwrap().path()).collect();
    pages.sort();
    assert!(!pages.is_empty());
    let mut wrong = Vec::new();
    for path in pages {
        let old = fs::read_to_string(&path).unwrap();
        let new = play(&old).await;
        let page = path.file_stem().unwrap().to_string_lossy().into_owned();
        if std::env::var("UPDATE").is_ok_and(|which| which == "1" || which == page) {
            fs::write(&path, new).unwrap();
        } else if old != new {
            wrong.push(difference(&path, &old, &new));
        }
    }
    assert!(wrong.is_empty(), "{}\n(run with UPDATE=1 to accept)", wrong.join("\n"));
}

fn difference(path: &Path, old: &str, new: &str) -> String {
    let first = old.lines().zip(new.lines()).position(|(a, b)| a != b).unwrap_or(0);
    let part = |text: &str| text.lines().skip(first.saturating_sub(4)).take(14).collect::<Vec<_>>().join("\n");
    format!("{}, line {}:\n--- the page says\n{}\n--- what came\n{}", path.display(), first + 1, part(old), part(new))
}

/// Plays a page and returns it with what came.
async fn play(page: &str) -> String {
    let (mut out, mut desk) = (String::new(), Desk::new());
    let mut reply = None;
    let mut rest = page;
    while let Some((prose, block)) = rest.split_once("\n```") {
        if prose.contains("\n## ") {
            desk = Desk::new();
        }
        let (info, block) = block.split_once('\n').expect("a block has an info line");
        let (body, after) = if let Some(after) = block.strip_prefix("```") {
            ("", after)
        } else {
            let (body, after) = block.split_once("\n```").expect("a block ends");
            (body, after)
        };
        let mut words = info.split(' ');
        let (shown, text) = match (words.next().unwrap_or_default(), words.collect::<Vec<_>>().as_slice()) {
            ("file", [name]) => {
                let text = body.strip_suffix("\\e").map_or_else(|| format!("{body}\n"), str::to_owned);
                desk.put(name, text);
                (info.to_owned(), body.to_owned())
            }
            ("call", [dialect, tool]) => {
                reply = Some(desk.call(dialect, tool, body).await);
                (info.to_owned(), body.to_owned())
            }
            ("reply", _) => {
                let reply = reply.as_ref().expect("a reply follows a call");
                let info = if reply.is_error { "reply error" } else { "reply" };
                (info.to_owned(), reply.text.trim_end().to_owned())
            }
            ("conversation", [id, user]) => {
                desk.converse(id, user, body).await;
                (info.to_owned(), body.to_owned())
            }
            ("git", []) => {
                desk.git(body);
                (info.to_owned(), body.to_owned())
            }
            ("ran", [schedule]) => {
                desk.ran(schedule, body).await;
                (info.to_owned(), body.to_owned())
            }
            ("disk", [name]) => {
                let bytes = desk.get(name);
                let text = String::from_utf8_lossy(&bytes);
                let text = text.strip_suffix('\n').map_or_else(|| format!("{text}\\e"), str::to_owned);
                (info.to_owned(), text)
            }
            _ => (info.to_owned(), body.to_owned()),
        };
        out += prose;
        out += "\n```";
        out += &shown;
        out.push('\n');
        if !text.is_empty() {
            out += &text;
            out.push('\n');
        }
        out += "```";
        rest = after;
    }
    out + rest
}
