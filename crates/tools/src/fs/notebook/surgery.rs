//! Changes one cell in a notebook's text: every byte outside the cell, and every unaffected member of it, stays
//! unchanged.

use std::ops::Range;

use helve_contract::{Error, Result};
use serde::Serialize;
use serde_json::{
    Value, json,
    ser::{PrettyFormatter, Serializer},
    value::RawValue,
};
use sha2::{Digest, Sha256};

use super::{NotebookText, join_source, members::RawObject};
use crate::fs::notebook_edit::{CellMode, NotebookEditTool};

/// How an operation went.
pub(in crate::fs) struct CellEditResult {
    /// The whole notebook afterwards.
    pub(in crate::fs) text: String,
    /// The cell that was replaced, made or removed.
    pub(in crate::fs) id: String,
    /// Its type: `code`, `markdown` or `raw`.
    pub(in crate::fs) kind: String,
    /// Its text before.
    pub(in crate::fs) old: Option<String>,
    /// The language of the notebook's code.
    pub(in crate::fs) language: String,
}

/// Makes the change in the text of a notebook.
pub(in crate::fs) fn edit_cell(path: &str, text: &str, edit: &NotebookEditTool) -> Result<CellEditResult> {
    let book = NotebookText::open(path, text)?;
    let (list, raw, cells) = (book.list, &book.raw, &book.cells);
    let place = find(path, cells, edit.cell_id.as_deref())?;
    let style = JsonStyle::of(text, list, raw.first().map(|it| it.get()));

    let span = |raw: &str| offset(text, raw)..offset(text, raw) + raw.len();
    let (range, patch, mut cut) = match edit.mode {
        CellMode::Replace => {
            let at = place.ok_or_else(|| Error::failed("name the cell that is to be replaced"))?;
            let (cell, kind) = replace_cell(&cells[at], edit, &style);
            (span(raw[at].get()), cell, result_for(cells, at, kind))
        }
        CellMode::Delete => {
            let at = place.ok_or_else(|| Error::failed("name the cell that is to be deleted"))?;
            let here = span(raw[at].get());
            let range = match (at, raw.get(at + 1)) {
                (1.., _) => span(raw[at - 1].get()).end..here.end,
                (0, Some(next)) => here.start..span(next.get()).start,
                (0, None) => span(list),
            };
            let rest = if raw.len() == 1 { "[]" } else { "" };
            (
                range,
                rest.to_owned(),
                result_for(cells, at, cells[at].value("cell_type").as_str().unwrap_or("raw").to_owned()),
            )
        }
        CellMode::Insert => {
            let Some(kind) = edit.cell_type else {
                return Err(Error::failed("say whether the new cell is code or markdown"));
            };
            let at = place.map_or(0, |it| it + 1);
            let id = book.has_ids().then(|| new_cell_id(cells, &edit.new_source, at));
            let listed = cells.first().is_none_or(|it| it.value("source").is_array());
            let cell = new_cell(edit, kind.as_str(), id.as_deref(), listed, &style);
            let (range, patch) = style.insertion(cell, at, raw, list, span);
            let id = id.unwrap_or_else(|| format!("cell-{at}"));
            (
                range,
                patch,
                CellEditResult {
                    text: String::new(),
                    id,
                    kind: kind.as_str().into(),
                    old: None,
                    language: String::new(),
                },
            )
        }
    };
    cut.text = [&text[..range.start], &patch, &text[range.end..]].concat();
    cut.language = book.language();
    verify_untouched(path, &book, &cut.text, edit.mode, place)?;
    Ok(cut)
}

fn result_for(cells: &[RawObject], at: usize, kind: String) -> CellEditResult {
    let old = Some(join_source(&cells[at].value("source")));
    CellEditResult { text: String::new(), id: id_of(&cells[at], at), kind, old, language: String::new() }
}

fn id_of(cell: &RawObject, at: usize) -> String {
    cell.value("id").as_str().map_or_else(|| format!("cell-{at}"), str::to_owned)
}

/// Which cell is meant: by its id, or as `cell-N` by its place.
fn find(path: &str, cells: &[RawObject], wanted: Option<&str>) -> Result<Option<usize>> {
    let Some(wanted) = wanted else { return Ok(None) };
    let same: Vec<_> = (0..cells.len()).filter(|at| cells[*at].value("id") == wanted).collect();
    let by_place = || wanted.strip_prefix("cell-")?.parse::<usize>().ok().filter(|at| *at < cells.len());
    match (same.as_slice(), by_place()) {
        ([only], _) => Ok(Some(*only)),
        ([], Some(at)) => Ok(Some(at)),
        ([], None) => {
            let mut ids: Vec<_> = cells.iter().enumerate().map(|(at, cell)| id_of(cell, at)).take(51).collect();
            if ids.len() > 50 {
                ids[50] = format!("… ({} cells in all)", cells.len());
            }
            let ids = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
            Err(Error::failed(format!("{path} has no cell `{wanted}`; its cells are: {ids}")))
        }
        (several, _) => {
            let places: Vec<_> = several.iter().map(|at| format!("cell-{at}")).collect();
            Err(Error::failed(format!(
                "{} cells of {path} have the id `{wanted}`; name one by its place: {}",
                several.len(),
                places.join(", ")
            )))
        }
    }
}

/// An id that no cell has.
fn new_cell_id(cells: &[RawObject], source: &str, at: usize) -> String {
    let taken: Vec<_> = cells.iter().map(|cell| cell.value("id")).collect();
    let id = |turn: u16| {
        let hash: [u8; 32] = Sha256::digest(format!("{at}\0{turn}\0{}\0{source}", cells.len())).into();
        format!("{:08x}", u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]))
    };
    (0..=u16::MAX).map(id).find(|id| taken.iter().all(|it| it != id)).unwrap_or_default()
}

/// The cell with its new text and type, without earlier outputs.
fn replace_cell(cell: &RawObject, edit: &NotebookEditTool, style: &JsonStyle) -> (String, String) {
    let before = cell.value("cell_type");
    let kind = edit.cell_type.map_or_else(|| before.as_str().unwrap_or("raw").to_owned(), |it| it.as_str().to_owned());
    let code = kind == "code";
    let mut members = Vec::new();
    for (name, raw) in &cell.0 {
        let value = match name.as_str() {
            "cell_type" if before != kind.as_str() => style.json(&json!(kind)),
            "source" => style.json(&source(&edit.new_source, raw.get().starts_with('['))),
            "outputs" | "execution_count" if !code => continue,
            "attachments" if code => continue,
            "outputs" => "[]".to_owned(),
            "execution_count" => "null".to_owned(),
            _ => raw.get().to_owned(),
        };
        members.push((name.clone(), value));
    }
    let has = |members: &[(String, String)], name: &str| members.iter().any(|(key, _)| key == name);
    if !has(&members, "source") {
        members.push(("source".into(), style.json(&source(&edit.new_source, true))));
    }
    if code && !has(&members, "execution_count") {
        members.push(("execution_count".into(), "null".into()));
    }
    if code && !has(&members, "outputs") {
        members.push(("outputs".into(), "[]".into()));
    }
    (style.object(&members), kind)
}

/// A new cell, its members in the order in which Jupyter writes them.
fn new_cell(edit: &NotebookEditTool, kind: &str, id: Option<&str>, listed: bool, style: &JsonStyle) -> String {
    let mut members = vec![("cell_type".to_owned(), style.json(&json!(kind)))];
    if kind == "code" {
        members.push(("execution_count".into(), "null".into()));
    }
    if let Some(id) = id {
        members.push(("id".into(), style.json(&json!(id))));
    }
    members.push(("metadata".into(), "{}".into()));
    if kind == "code" {
        members.push(("outputs".into(), "[]".into()));
    }
    members.push(("source".into(), style.json(&source(&edit.new_source, listed))));
    style.object(&members)
}

/// A text as a list of lines, each with its end, or as one string.
fn source(text: &str, listed: bool) -> Value {
    if listed { text.split_inclusive('\n').collect::<Vec<_>>().into() } else { text.into() }
}

/// The JSON formatting of a notebook.
struct JsonStyle {
    /// The text before each cell: line end and indentation; empty or a space in a single-line notebook.
    before_cell: String,
    /// What stands before the end of the list of cells.
    before_end: String,
    /// One step of indentation, where there are lines.
    unit: Option<String>,
    colon: &'static str,
    comma: &'static str,
    /// Characters beyond ASCII are written as `\u....`.
    ascii: bool,
}

impl JsonStyle {
    fn of(text: &str, list: &str, first_cell: Option<&str>) -> Self {
        let gap = |text: &str| text[text.trim_end_matches([' ', '\t', '\r', '\n']).len()..].to_owned();
        let first_member = text.find('"').map_or(String::new(), |at| gap(&text[..at]));
        let indent = first_member.rfind('\n').map(|at| first_member[at + 1..].to_owned());
        let before_cell = match (first_cell, &indent) {
            (Some(cell), _) => gap(&text[..offset(text, cell)]),
            (None, Some(unit)) => format!("{first_member}{unit}"),
            (None, None) => String::new(),
        };
        let before_end = match first_cell {
            Some(_) => gap(&list[..list.len() - 1]),
            None if indent.is_some() => first_member,
            None => String::new(),
        };
        let lines = before_cell.contains('\n');
        Self {
            unit: indent.filter(|_| lines),
            before_cell,
            before_end,
            colon: if text.contains("\": ") || text.contains("\":\n") { ": " } else { ":" },
            comma: if !lines && text.contains(", \"") { ", " } else { "," },
            ascii: text.is_ascii() && text.contains("\\u"),
        }
    }

    /// A value as it stands in a member of a cell.
    fn json(&self, value: &Value) -> String {
        let text = match &self.unit {
            None => value.to_string(),
            Some(unit) => {
                let mut bytes = Vec::new();
                let mut to = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(unit.as_bytes()));
                match value.serialize(&mut to) {
                    Ok(()) => String::from_utf8_lossy(&bytes).replace('\n', &format!("{}{unit}", self.before_cell)),
                    Err(_) => value.to_string(),
                }
            }
        };
        if !self.ascii || text.is_ascii() {
            return text;
        }
        let mut escaped = String::new();
        for it in text.chars() {
            if it.is_ascii() {
                escaped.push(it);
            } else {
                it.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped += &format!("\\u{unit:04x}"));
            }
        }
        escaped
    }

    /// A cell from the text of its members.
    fn object(&self, members: &[(String, String)]) -> String {
        let (gap, end) = match &self.unit {
            Some(unit) => (format!("{}{unit}", self.before_cell), self.before_cell.as_str()),
            None => (String::new(), ""),
        };
        let members: Vec<_> =
            members.iter().map(|(name, value)| format!("{gap}{}{}{value}", json!(name), self.colon)).collect();
        format!("{{{}{end}}}", members.join(self.comma))
    }

    /// Where a new cell goes, and the text that goes there.
    fn insertion(
        &self,
        cell: String,
        at: usize,
        cells: &[&RawValue],
        list: &str,
        span: impl Fn(&str) -> Range<usize>,
    ) -> (Range<usize>, String) {
        let blank = if self.unit.is_none() && self.comma == ", " { " " } else { "" };
        let gap = if self.unit.is_some() { self.before_cell.as_str() } else { blank };
        match (cells.first(), at.checked_sub(1).and_then(|before| cells.get(before))) {
            (None, _) => (span(list), format!("[{}{cell}{}]", self.before_cell, self.before_end)),
            (_, Some(before)) => {
                let end = span(before.get()).end;
                (end..end, format!(",{gap}{cell}"))
            }
            (Some(first), None) => {
                let start = span(first.get()).start;
                (start..start, format!("{cell},{gap}"))
            }
        }
    }
}

/// Where a piece of a text begins in it.
fn offset(text: &str, piece: &str) -> usize {
    piece.as_ptr().addr().wrapping_sub(text.as_ptr().addr()).min(text.len())
}

/// Verifies that the result is a notebook in which only that cell differs, byte by byte.
fn verify_untouched(
    path: &str,
    before: &NotebookText,
    after: &str,
    mode: CellMode,
    place: Option<usize>,
) -> Result<()> {
    let wrong = || Error::failed(format!("{path} was not changed: the change would have damaged the notebook"));
    let after = NotebookText::open(path, after).map_err(|_| wrong())?;
    let (gone, come) = match mode {
        CellMode::Replace => (place, place),
        CellMode::Delete => (place, None),
        CellMode::Insert => (None, Some(place.map_or(0, |it| it + 1))),
    };
    let counted = before.raw.len() + usize::from(come.is_some()) == after.raw.len() + usize::from(gone.is_some());
    let same = other_cells(before, gone).eq(other_cells(&after, come))
        && non_cell_members(before).eq(non_cell_members(&after));
    if counted && same { Ok(()) } else { Err(wrong()) }
}

/// The text of all cells but one.
fn other_cells<'a>(book: &'a NotebookText, but: Option<usize>) -> impl Iterator<Item = &'a str> {
    book.raw.iter().enumerate().filter(move |(at, _)| Some(*at) != but).map(|(_, cell)| cell.get())
}

/// The names and texts of what is in a notebook beside its cells.
fn non_cell_members<'a>(book: &'a NotebookText) -> impl Iterator<Item = (&'a str, &'a str)> {
    book.top.0.iter().filter(|(name, _)| name != "cells").map(|(name, value)| (name.as_str(), value.get()))
}
