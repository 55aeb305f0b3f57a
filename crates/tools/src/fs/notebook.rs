//! Jupyter notebooks: parsing, and changes of one cell that preserve the rest.

mod members;
mod surgery;

use helve_contract::{Error, Result};
use serde_json::{Value, value::RawValue};

use self::members::RawObject;
pub(super) use self::surgery::edit_cell;

/// The largest notebook that is read or changed.
pub(super) const MAX_NOTEBOOK_BYTES: u64 = 32 << 20;

/// How much of one output is shown.
const MAX_OUTPUT_CHARS: usize = 10_000;

/// What is in a notebook.
#[derive(Clone, Debug, PartialEq)]
pub struct Notebook {
    /// The file, as the model knows it.
    pub path: String,
    /// The language of its code.
    pub language: String,
    /// Its cells, in order.
    pub cells: Vec<Cell>,
}

/// A cell of a notebook.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Its id, or `cell-N` (counted from 0) where it has none.
    pub id: String,
    /// `code`, `markdown` or `raw`.
    pub kind: String,
    /// Its text.
    pub source: String,
    /// The execution count.
    pub execution_count: Option<u64>,
    /// Its outputs.
    pub outputs: Vec<CellOutput>,
}

/// An output of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellOutput {
    /// Truncated text.
    Text(String),
    /// Other data: its type and its size in the file.
    Media(String, usize),
}

impl Notebook {
    /// Reads a notebook of format 4.
    pub fn parse(path: &str, bytes: &[u8]) -> Result<Self> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Error::failed(format!("{path} is not a notebook: it is not UTF-8 text")))?;
        let book = NotebookText::open(path, text)?;
        let cells = book.cells.iter().enumerate().map(|(at, cell)| Cell {
            id: cell.value("id").as_str().map_or_else(|| format!("cell-{at}"), str::to_owned),
            kind: cell.value("cell_type").as_str().unwrap_or("raw").to_owned(),
            source: join_source(&cell.value("source")),
            execution_count: cell.value("execution_count").as_u64(),
            outputs: cell.value("outputs").as_array().into_iter().flatten().map(output).collect(),
        });
        Ok(Self { path: path.to_owned(), language: book.language(), cells: cells.collect() })
    }

    /// All cells with their ids and outputs.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for cell in &self.cells {
            let count = cell.execution_count.map(|it| format!(", run {it}")).unwrap_or_default();
            text += &format!("[cell {}: {}{count}]\n{}\n", cell.id, cell.kind, cell.source.trim_end_matches('\n'));
            for output in &cell.outputs {
                text += &match output {
                    CellOutput::Text(it) => format!("[output]\n{}\n", it.trim_end_matches('\n')),
                    CellOutput::Media(kind, size) => format!("[output: {kind}, {size} bytes]\n"),
                };
            }
        }
        if text.is_empty() { format!("[{} has no cells]\n", self.path) } else { text }
    }
}

/// The text of a notebook, opened as far as its cells.
struct NotebookText<'a> {
    top: RawObject<'a>,
    /// The text of the list of cells, and of each cell.
    list: &'a str,
    raw: Vec<&'a RawValue>,
    cells: Vec<RawObject<'a>>,
}

impl<'a> NotebookText<'a> {
    /// Opens a notebook of the format that is understood here.
    fn open(path: &str, text: &'a str) -> Result<Self> {
        let broken = |error| Error::failed(format!("{path} is not a notebook: its JSON is broken ({error})"));
        let top: RawObject = serde_json::from_str(text).map_err(broken)?;
        let list = top.get("cells").map_or("", RawValue::get);
        match top.value("nbformat").as_u64() {
            Some(4) if list.starts_with('[') => {}
            Some(4) => return Err(Error::failed(format!("{path} is not a notebook: it has no list of cells"))),
            Some(old @ 0..=3) => {
                return Err(Error::failed(format!(
                    "{path} is a notebook of the old format {old}; convert it first, with `jupyter nbconvert --to notebook`"
                )));
            }
            Some(new) => {
                let text = format!("{path} is a notebook of format {new}; only format 4 is understood");
                return Err(Error::failed(text));
            }
            None => return Err(Error::failed(format!("{path} is not a notebook: it does not say its format"))),
        }
        let raw: Vec<&RawValue> = serde_json::from_str(list).map_err(broken)?;
        let cells = raw.iter().map(|it| serde_json::from_str(it.get())).collect::<Result<_, _>>().map_err(broken)?;
        Ok(Self { top, list, raw, cells })
    }

    /// The language of the notebook's code.
    fn language(&self) -> String {
        let meta = self.top.value("metadata");
        let name = meta["kernelspec"]["language"].as_str().or(meta["language_info"]["name"].as_str());
        name.unwrap_or("python").to_owned()
    }

    /// Cells have ids since format 4.5.
    fn has_ids(&self) -> bool {
        self.top.value("nbformat_minor").as_u64().unwrap_or(0) >= 5
    }
}

/// A text that is one string or a list of them.
fn join_source(text: &Value) -> String {
    match text {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

fn output(output: &Value) -> CellOutput {
    if let Some(trace) = output["traceback"].as_array() {
        let lines: Vec<_> = trace.iter().filter_map(Value::as_str).map(strip_ansi).collect();
        return CellOutput::Text(truncate_output(&lines.join("\n")));
    }
    if output.get("text").is_some() {
        return CellOutput::Text(truncate_output(&join_source(&output["text"])));
    }
    let data = output["data"].as_object();
    let picture = data.and_then(|data| data.iter().find(|(kind, _)| kind.starts_with("image/")));
    match (picture, data) {
        (Some((kind, data)), _) => CellOutput::Media(kind.clone(), join_source(data).len()),
        (None, Some(data)) if data.contains_key("text/plain") => {
            CellOutput::Text(truncate_output(&join_source(&data["text/plain"])))
        }
        (None, Some(data)) => match data.iter().next() {
            Some((kind, data)) => CellOutput::Media(kind.clone(), join_source(data).len()),
            None => CellOutput::Text(String::new()),
        },
        (None, None) => CellOutput::Text(truncate_output(&output.to_string())),
    }
}

fn truncate_output(text: &str) -> String {
    match text.char_indices().nth(MAX_OUTPUT_CHARS) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}… [cut: the output has {} bytes]", &text[..at], text.len()),
    }
}

/// Without the colours of a terminal.
fn strip_ansi(line: &str) -> String {
    let mut text = String::new();
    let mut pieces = line.split("\u{1b}[");
    text += pieces.next().unwrap_or_default();
    for piece in pieces {
        let end = piece.find(|it: char| it.is_ascii_alphabetic()).map_or(0, |at| at + 1);
        text += &piece[end..];
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::testing::{assert_text, call};

    #[tokio::test]
    async fn shows_cells_and_what_they_printed() {
        let book = r##"{"cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "text"]},
            {"cell_type": "code", "id": "a1", "execution_count": 3, "metadata": {}, "source": "print(1)\n1/0", "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1\n"]},
                {"output_type": "display_data", "data": {"image/png": "aGk=", "text/plain": "<Figure>"}},
                {"output_type": "error", "traceback": ["\u001b[0;31mZeroDivisionError\u001b[0m: division"]}]}
        ], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"##;
        let (reply, _) = call::<crate::fs::ReadTool>(&[("a.ipynb", book)], r#"{"path": "a.ipynb"}"#).await;
        assert_text(
            &reply,
            "[cell cell-0: markdown]\n# Title\ntext\n[cell a1: code, run 3]\nprint(1)\n1/0\n[output]\n1\n\
             [output: image/png, 4 bytes]\n[output]\nZeroDivisionError: division\n",
        );
    }

    #[tokio::test]
    async fn what_is_no_notebook_is_text() {
        let (reply, _) =
            call::<crate::fs::ReadTool>(&[("a.ipynb", "{\"nbformat\": 3")], r#"{"path": "a.ipynb"}"#).await;
        assert_text(&reply, "     1\t{\"nbformat\": 3\n");
    }
}
