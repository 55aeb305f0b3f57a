//! Tables: rows of cells where it is one, plain blocks where it only holds a page together.

use dom_query::NodeRef;

use super::{
    HtmlTextStyle,
    write::{BlockContext, HtmlWriter, has_block, is_block, name},
};

/// Wider tables are for machines.
const MAX_COLUMNS: usize = 40;

impl HtmlWriter<'_> {
    pub(super) fn table(&self, node: &NodeRef<'_>, place: &BlockContext, out: &mut Vec<String>) {
        let mut rows = Vec::new();
        collect_rows(node, &mut rows);
        if !is_data_table(&rows) {
            for row in rows {
                for cell in row.children_it(false).filter(NodeRef::is_element) {
                    out.extend(self.blocks(&cell, place));
                }
            }
            return;
        }
        for caption in node.children_it(false).filter(|it| it.has_name("caption")) {
            out.extend(self.blocks(&caption, place));
        }
        let rows: Vec<Vec<String>> = rows.iter().map(|row| self.cells(row)).filter(|it| !it.is_empty()).collect();
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut lines = Vec::new();
        for (at, mut row) in rows.into_iter().enumerate() {
            row.resize(width, String::new());
            lines.push(format!("| {} |", row.join(" | ")));
            if at == 0 {
                lines.push(format!("|{}", " --- |".repeat(width)));
            }
        }
        out.extend((!lines.is_empty()).then(|| lines.join("\n")));
    }

    fn cells(&self, row: &NodeRef<'_>) -> Vec<String> {
        let mut cells = Vec::new();
        for cell in row.children_it(false).filter(NodeRef::is_element) {
            let break_ = if self.style == HtmlTextStyle::Markdown { "<br>" } else { " " };
            let text = self.line(&cell).replace("  \n", break_).replace('\n', break_).replace('|', "\\|");
            let span =
                cell.attr("colspan").and_then(|it| it.trim().parse::<usize>().ok()).unwrap_or(1).clamp(1, MAX_COLUMNS);
            cells.push(text);
            cells.extend(std::iter::repeat_n(String::new(), span - 1));
        }
        cells.truncate(MAX_COLUMNS);
        cells
    }
}

/// The rows of a table, not of those inside it.
fn collect_rows<'a>(node: &NodeRef<'a>, rows: &mut Vec<NodeRef<'a>>) {
    for child in node.children_it(false) {
        match name(&child).as_deref() {
            Some("tr") => rows.push(child),
            Some("tbody" | "thead" | "tfoot") => collect_rows(&child, rows),
            _ => {}
        }
    }
}

/// Whether rows are data: more than one column, and cells of words.
fn is_data_table(rows: &[NodeRef<'_>]) -> bool {
    let mut wide = 0;
    for row in rows {
        let mut cells = 0;
        for cell in row.children_it(false).filter(NodeRef::is_element) {
            cells += 1;
            let heavy = |it: &NodeRef<'_>| {
                name(it).is_some_and(|tag| is_block(&tag) && !matches!(&*tag, "p" | "div" | "center" | "section"))
            };
            if has_block(&cell) && cell.descendants_it().any(|it| heavy(&it)) {
                return false;
            }
            if cell.normalized_char_count() > 1500 {
                return false;
            }
        }
        wide += usize::from(cells > 1);
    }
    wide > 0
}
