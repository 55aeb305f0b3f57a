//! Tests of pages of a long file: correct with and without an earlier read, and after a change.

use std::{
    fs::File,
    time::{Duration, SystemTime},
};

use crate::desk::Desk;

/// A long file that has not changed recently.
fn put(desk: &Desk, lines: &[String]) {
    desk.put("long.txt", lines.concat());
    let file = File::options().write(true).open(desk.root().join("long.txt")).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
}

async fn page(desk: &mut Desk, skip: usize, limit: usize) -> String {
    let args = serde_json::json!({ "path": "long.txt", "offset": skip, "limit": limit });
    desk.call("solo", "read", &args.to_string()).await.text
}

/// The lines as a page shows them.
fn shown(lines: &[String], skip: usize, limit: usize) -> String {
    let page = lines.iter().enumerate().skip(skip).take(limit);
    page.map(|(at, line)| format!("{:>6}\t{line}", at + 1)).collect::<Vec<_>>().concat()
}

#[tokio::test]
async fn pages_of_a_long_file_are_right_in_any_order() {
    let mut desk = Desk::new();
    let lines: Vec<String> = (0..90_000).map(|at| format!("line {at} {}\n", "é".repeat(at % 30))).collect();
    put(&desk, &lines);
    for skip in [0, 89_990, 45_000, 1, 45_000, 12_345, 70_001, 3_000, 89_999] {
        let text = page(&mut desk, skip, 10).await;
        let wanted = shown(&lines, skip, 10);
        assert!(text.starts_with(&wanted), "after {skip}: {}", &text[..text.len().min(300)]);
        let note = &text[wanted.len()..];
        assert!(
            if skip < 89_990 { note.contains("of 90000") } else { !note.contains("go on") },
            "after {skip}: {note}"
        );
    }
    assert!(page(&mut desk, 95_000, 10).await.contains("has 90000 lines"));
}

#[tokio::test]
async fn a_long_file_that_changed_is_read_anew() {
    let mut desk = Desk::new();
    let lines: Vec<String> = (0..90_000).map(|at| format!("{at:>10} of the first, {}\n", "x".repeat(20))).collect();
    put(&desk, &lines);
    for skip in [80_000, 40_000] {
        assert!(page(&mut desk, skip, 5).await.starts_with(&shown(&lines, skip, 5)));
    }
    // The same size, but other lines.
    let mut others: Vec<String> = lines.iter().map(|line| line.replace("of the first", "of\nthe second")).collect();
    others.truncate(lines.len());
    let text = others.concat();
    let text = text[..lines.concat().len()].to_owned();
    let others: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    put(&desk, &others);
    for skip in [80_000, 40_000, 120_000] {
        let (text, wanted) = (page(&mut desk, skip, 5).await, shown(&others, skip, 5));
        assert!(text.starts_with(&wanted), "after {skip}: {}", &text[..text.len().min(300)]);
    }
}
