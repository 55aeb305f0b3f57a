//! `notebook_edit`: one cell of a Jupyter notebook.

use helve_contract::{
    AccessRequest, Call, Effects, Error, FileErrorKind, Reply, Result, SafePath, Tool,
    ports::{Expect, Span},
    schemars,
    schemars::JsonSchema,
};
use serde::{Deserialize, Serialize};

use super::{
    notebook::{self, MAX_NOTEBOOK_BYTES},
    with_suggestions,
};

/// Replaces, inserts or deletes one cell of a Jupyter notebook. Everything else in the file stays as it is; the outputs
/// of a replaced code cell are cleared.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotebookEditTool {
    /// The notebook.
    pub path: String,
    /// The cell: its id, or `cell-N` counted from 0. A new cell goes after it, or to the beginning without it.
    pub cell_id: Option<String>,
    /// The cell's new text.
    #[serde(default)]
    pub new_source: String,
    /// Type of the cell. Needed for a new one.
    pub cell_type: Option<CellType>,
    /// What to do.
    #[serde(default)]
    pub mode: CellMode,
}

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CellType {
    /// Code.
    Code,
    /// Markdown.
    Markdown,
}

impl CellType {
    /// As a notebook writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Markdown => "markdown",
        }
    }
}

/// What to do with a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CellMode {
    /// Give it another text.
    #[default]
    Replace,
    /// Make a new one after it.
    Insert,
    /// Remove it.
    Delete,
}

impl CellMode {
    /// As a model writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Insert => "insert",
            Self::Delete => "delete",
        }
    }
}

/// The result of a notebook change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotebookEditOutput {
    /// The file, as the model knows it.
    pub path: String,
    /// The operation.
    pub mode: CellMode,
    /// The changed or new cell.
    pub cell_id: String,
    /// Its type afterwards: `code`, `markdown` or `raw`.
    pub cell_type: String,
    /// The language of the notebook's code.
    pub language: String,
    /// The cell's text before.
    pub old_source: Option<String>,
    /// The cell's text now.
    pub new_source: String,
    /// The whole file before.
    pub original: String,
    /// The whole file now.
    pub updated: String,
}

impl Tool for NotebookEditTool {
    const NAME: &'static str = "notebook_edit";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    type Output = NotebookEditOutput;

    fn access(&self) -> Option<AccessRequest> {
        Some(AccessRequest::writes([&self.path]))
    }

    async fn run(self, call: &Call) -> Result<NotebookEditOutput> {
        let path = call.check_write(&self.path)?;
        match self.try_once(call, &path).await {
            // Another writer was faster: read the new content and find the cell again.
            Err(Error::File { fault: FileErrorKind::Changed, .. }) => self.try_once(call, &path).await,
            done => done,
        }
    }
}

impl NotebookEditTool {
    async fn try_once(&self, call: &Call, path: &SafePath) -> Result<NotebookEditOutput> {
        let file = match call.host().read(path, Span::first(MAX_NOTEBOOK_BYTES)).await {
            Ok(file) => file,
            Err(error) => return Err(with_suggestions(call, path, error).await),
        };
        if file.size > MAX_NOTEBOOK_BYTES {
            return Err(Error::file(path, FileErrorKind::TooLarge { bytes: file.size, limit: MAX_NOTEBOOK_BYTES }));
        }
        let text = std::str::from_utf8(&file.bytes)
            .map_err(|_| Error::failed(format!("{path} is not a notebook: it is not UTF-8 text")))?;
        let (bom, body) = match text.strip_prefix('\u{feff}') {
            Some(body) => ("\u{feff}", body),
            None => ("", text),
        };
        let cut = notebook::edit_cell(&path.to_string(), body, self)?;
        let updated = format!("{bom}{}", cut.text);
        call.remark(call.host().write(path, updated.as_bytes(), Expect::bytes(&file.bytes)).await?.remarks);
        Ok(NotebookEditOutput {
            path: path.to_string(),
            mode: self.mode,
            cell_id: cut.id,
            cell_type: cut.kind,
            language: cut.language,
            old_source: cut.old,
            new_source: if self.mode == CellMode::Delete { String::new() } else { self.new_source.clone() },
            original: text.to_owned(),
            updated,
        })
    }
}

impl From<NotebookEditOutput> for Reply {
    fn from(it: NotebookEditOutput) -> Self {
        let done = match it.mode {
            CellMode::Replace => "replaced",
            CellMode::Insert => "inserted",
            CellMode::Delete => "deleted",
        };
        format!("{done} {} cell {} of {}", it.cell_type, it.cell_id, it.path).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeHost, assert_text, call, call_on};

    const BOOK: &str = r#"{
 "cells": [
  {
   "cell_type": "code",
   "execution_count": 3,
   "id": "a1",
   "metadata": {"odd":   [1.50, 1e400000]},
   "outputs": [{"output_type": "stream", "name": "stdout", "text": ["x\n"]}],
   "source": [
    "a = 1\n",
    "a"
   ]
  },
  {
   "attachments": {"i.png": {}},
   "cell_type": "markdown",
   "id": "b2",
   "metadata": {},
   "source": "\u00e9"
  }
 ],
 "metadata": {"kernelspec": {"language": "julia"}},
 "nbformat": 4,
 "nbformat_minor": 5
}
"#;

    fn book() -> String {
        // A number out of range would make the JSON invalid for every parser.
        BOOK.replace("1e400000", "12345678901234567890123")
    }

    async fn edited(args: &str) -> (String, String) {
        let (reply, files) = call::<NotebookEditTool>(&[("n.ipynb", &book())], args).await;
        (reply.text, String::from_utf8(files["n.ipynb"].clone()).unwrap())
    }

    #[tokio::test]
    async fn replaces_a_cell_and_nothing_else() {
        let (reply, file) = edited(r#"{"path": "n.ipynb", "cell_id": "a1", "new_source": "b = 2\nb\n"}"#).await;
        assert_eq!(reply, "replaced code cell a1 of n.ipynb");
        let want = book()
            .replace("\"execution_count\": 3", "\"execution_count\": null")
            .replace(r#"[{"output_type": "stream", "name": "stdout", "text": ["x\n"]}]"#, "[]")
            .replace(r#""a = 1\n""#, r#""b = 2\n""#)
            .replace(r#"    "a""#, r#"    "b\n""#);
        assert_eq!(file, want);
    }

    #[tokio::test]
    async fn keeps_a_string_a_string_and_writes_as_the_file_does() {
        let (_, file) = edited(r#"{"path": "n.ipynb", "cell_id": "cell-1", "new_source": "naïve 😀\n"}"#).await;
        assert_eq!(file, book().replace(r#""\u00e9""#, r#""na\u00efve \ud83d\ude00\n""#));
    }

    #[tokio::test]
    async fn changes_the_type_of_a_cell() {
        let (reply, file) =
            edited(r#"{"path": "n.ipynb", "cell_id": "b2", "cell_type": "code", "new_source": "1"}"#).await;
        assert_eq!(reply, "replaced code cell b2 of n.ipynb");
        let want = book()
            .replace(
                "   \"attachments\": {\"i.png\": {}},\n   \"cell_type\": \"markdown\"",
                "   \"cell_type\": \"code\"",
            )
            .replace(r#""source": "\u00e9""#, "\"source\": \"1\",\n   \"execution_count\": null,\n   \"outputs\": []");
        assert_eq!(file, want);
    }

    #[tokio::test]
    async fn inserts_after_a_cell_and_at_the_beginning() {
        let (reply, file) =
            edited(r#"{"path": "n.ipynb", "cell_id": "b2", "mode": "insert", "cell_type": "code", "new_source": "z"}"#)
                .await;
        let id = reply.strip_prefix("inserted code cell ").unwrap().strip_suffix(" of n.ipynb").unwrap();
        let cell = format!(
            ",\n  {{\n   \"cell_type\": \"code\",\n   \"execution_count\": null,\n   \"id\": \"{id}\",\n   \
             \"metadata\": {{}},\n   \"outputs\": [],\n   \"source\": [\n    \"z\"\n   ]\n  }}\n ],"
        );
        assert_eq!(file, book().replace("\n ],", &cell));

        let (_, file) =
            edited(r#"{"path": "n.ipynb", "mode": "insert", "cell_type": "markdown", "new_source": ""}"#).await;
        assert!(file.starts_with("{\n \"cells\": [\n  {\n   \"cell_type\": \"markdown\",\n   \"id\": \""), "{file}");
        assert!(file.contains("   \"source\": []\n  },\n  {\n   \"cell_type\": \"code\","), "{file}");
    }

    #[tokio::test]
    async fn deletes_first_last_and_only_cells() {
        let (reply, one) = edited(r#"{"path": "n.ipynb", "cell_id": "a1", "mode": "delete"}"#).await;
        assert_eq!(reply, "deleted code cell a1 of n.ipynb");
        assert!(one.starts_with("{\n \"cells\": [\n  {\n   \"attachments\""), "{one}");
        let (_, other) = edited(r#"{"path": "n.ipynb", "cell_id": "b2", "mode": "delete"}"#).await;
        assert!(other.contains("   ]\n  }\n ],\n \"metadata\""), "{other}");
        let (_, files) =
            call::<NotebookEditTool>(&[("n.ipynb", &one)], r#"{"path": "n.ipynb", "cell_id": "b2", "mode": "delete"}"#)
                .await;
        assert!(files["n.ipynb"].starts_with(b"{\n \"cells\": [],\n \"metadata\""));
    }

    #[tokio::test]
    async fn other_layouts_stay_as_they_are() {
        let compact = r#"{"cells":[{"cell_type":"code","execution_count":1,"metadata":{},"outputs":[],"source":["x"]}],"metadata":{},"nbformat":4,"nbformat_minor":2}"#;
        let tabs = "{\r\n\t\"cells\": [],\r\n\t\"metadata\": {},\r\n\t\"nbformat\": 4,\r\n\t\"nbformat_minor\": 2\r\n}";
        let args = r#"{"path": "n.ipynb", "mode": "insert", "cell_type": "markdown", "new_source": "y"}"#;
        let cell = r#"{"cell_type":"markdown","metadata":{},"source":["y"]},"#;
        let (_, files) = call::<NotebookEditTool>(&[("n.ipynb", compact)], args).await;
        assert_eq!(files["n.ipynb"], compact.replacen("[{", &format!("[{cell}{{"), 1).as_bytes());
        let (_, files) = call::<NotebookEditTool>(&[("n.ipynb", tabs)], args).await;
        let cell = "[\r\n\t\t{\r\n\t\t\t\"cell_type\": \"markdown\",\r\n\t\t\t\"metadata\": {},\r\n\t\t\t\"source\": [\r\n\
                    \t\t\t\t\"y\"\r\n\t\t\t]\r\n\t\t}\r\n\t]";
        assert_eq!(String::from_utf8_lossy(&files["n.ipynb"]), tabs.replace("[]", cell));
    }

    #[tokio::test]
    async fn says_what_is_wrong_and_changes_nothing() {
        let twice = book().replace("b2", "a1");
        let old = r#"{"nbformat": 3, "nbformat_minor": 0, "worksheets": []}"#;
        for (file, args, want) in [
            (book(), r#""cell_id": "c3""#, "n.ipynb has no cell `c3`; its cells are: a1, b2"),
            (book(), r#""cell_id": "cell-2""#, "n.ipynb has no cell `cell-2`; its cells are: a1, b2"),
            (book(), r#""mode": "insert""#, "say whether the new cell is code or markdown"),
            (book(), r#""mode": "delete""#, "name the cell that is to be deleted"),
            (twice, r#""cell_id": "a1""#, "2 cells of n.ipynb have the id `a1`; name one by its place: cell-0, cell-1"),
            (
                old.to_owned(),
                r#""cell_id": "a1""#,
                "n.ipynb is a notebook of the old format 3; convert it first, with `jupyter nbconvert --to notebook`",
            ),
            (
                "{".to_owned(),
                r#""cell_id": "a1""#,
                "n.ipynb is not a notebook: its JSON is broken (EOF while parsing an object at line 1 column 1)",
            ),
            ("{}".to_owned(), r#""cell_id": "a1""#, "n.ipynb is not a notebook: it does not say its format"),
        ] {
            let args = format!(r#"{{"path": "n.ipynb", {args}, "new_source": "x"}}"#);
            let (reply, files) = call::<NotebookEditTool>(&[("n.ipynb", &file)], &args).await;
            assert_text(&reply, want);
            assert_eq!(files["n.ipynb"], file.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_change_by_somebody_else_is_kept() {
        let memory = FakeHost::with(&[("n.ipynb", &book())]);
        memory.inject_write("n.ipynb", book().replace("a = 1", "a = 7"));
        let args = r#"{"path": "n.ipynb", "cell_id": "b2", "new_source": "mine"}"#;
        assert_text(&call_on::<NotebookEditTool>(&memory, args).await, "replaced markdown cell b2 of n.ipynb");
        let want = book().replace("a = 1", "a = 7").replace(r#""\u00e9""#, "\"mine\"");
        assert_eq!(String::from_utf8(memory.bytes("n.ipynb")).unwrap(), want);
    }
}
