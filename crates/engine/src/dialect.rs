//! `Dialect`: a table of tools with its roles, limits and message templates.

use std::{collections::BTreeMap, path::PathBuf};

use helve_contract::{
    Entry, Error, Limit, PathStyle, Port, PortSet, Reply, SizeUnit, TruncateSide, TruncatedBy, Truncation,
};
use serde_json::Value;

/// A dialect: its tools, its path style, its limits and its message templates.
#[derive(Clone)]
pub struct Dialect {
    /// Its name: `claude`.
    pub name: &'static str,
    /// A description in one line.
    pub description: &'static str,
    /// The tools, in the order in which the model sees them.
    pub tools: Vec<Entry>,
    /// Rows that another crate supplies at run time, such as tools for MCP resources.
    pub external: &'static [ExternalRow],
    /// The named subsets of tools that a session can select: the seed's roles or presets.
    pub roles: &'static [Role],
    /// The default role; `None` offers every tool.
    pub default_role: Option<&'static str>,
    /// How its model writes paths.
    pub path_style: PathStyle,
    /// The output limits for each tool.
    pub limits: OutputLimits,
    /// The templates for errors, truncation notices and similar texts.
    pub templates: MessageTemplates,
    /// The default approval mode.
    pub mode: crate::Mode,
}

impl Dialect {
    /// Whether a row of its table needs this port.
    pub fn needs(&self, port: Port) -> bool {
        let rows = self.tools.iter().map(|entry| entry.spec.needs).chain(self.external.iter().map(|row| row.needs));
        rows.into_iter().any(|needs| needs.has(port))
    }
}

/// A named subset of tools: a seed's role or preset.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Its name: `readonly`, `captain`.
    pub name: &'static str,
    /// Its tools by name; `["*"]` means all.
    pub tools: &'static [&'static str],
    /// Whether it includes tools of plugins, modules and MCP servers.
    pub imports: bool,
}

/// A row of a dialect whose tool another crate builds.
#[derive(Clone, Copy, Debug)]
pub struct ExternalRow {
    /// The name that the model calls.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The ports that it needs.
    pub needs: PortSet,
}

/// The output limits of a dialect.
#[derive(Clone, Copy, Debug)]
pub struct OutputLimits {
    /// The default limit.
    pub general: Limit,
    /// Limits of single tools, by name.
    pub by_tool: &'static [(&'static str, Limit)],
    /// Tools that return pages and say how to read the next one. Their limit only has to fit a page, and settings do
    /// not change it.
    pub paged: &'static [&'static str],
    /// The ranges of optional numbers. The engine clamps a number to its range, and the model gets a note.
    pub ranges: &'static [ParameterRange],
}

/// The permitted range of a numeric parameter.
#[derive(Clone, Copy, Debug)]
pub struct ParameterRange {
    /// The tool, by name.
    pub tool: &'static str,
    /// The parameter.
    pub parameter: &'static str,
    /// The smallest number.
    pub min: u32,
    /// The largest number.
    pub max: u32,
}

impl ParameterRange {
    /// Clamps a number to the range. Returns the note for the model.
    pub(crate) fn apply(&self, args: &mut Value) -> Option<String> {
        let Self { parameter, min, max, .. } = *self;
        let value = args.get_mut(parameter)?;
        let number = value.as_f64()?;
        let (used, what) = match number {
            _ if number > f64::from(max) => (max, "most"),
            // The schema refuses a negative size.
            _ if number >= 0.0 && number < f64::from(min) => (min, "least"),
            _ => return None,
        };
        let note = format!("{parameter} was {value}; the {what} is {used}, which was used instead");
        *value = used.into();
        Some(note)
    }
}

impl OutputLimits {
    /// The limit of a tool.
    pub fn for_tool(&self, tool: &str) -> Limit {
        self.by_tool.iter().find(|(name, _)| *name == tool).map_or(self.general, |(_, limit)| *limit)
    }
}

/// Output limits that replace those of the dialect. See [`EngineBuilder::limits`](crate::EngineBuilder::limits).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitSettings {
    /// For every tool, in bytes.
    pub max_output_bytes: Option<usize>,
    /// For every tool, in lines.
    pub max_output_lines: Option<usize>,
    /// For single tools, in bytes, by name. They win over `max_output_bytes`.
    pub by_tool: BTreeMap<String, usize>,
}

impl LimitSettings {
    /// The limit of a tool, given that of the dialect.
    pub(crate) fn apply(&self, limits: &OutputLimits, tool: &str) -> Limit {
        let mut limit = limits.for_tool(tool);
        if let Some(size) = self.by_tool.get(tool) {
            limit = Limit::bytes(*size).lines(limit.lines);
        } else if limits.paged.contains(&tool) {
            return limit;
        } else if let Some(size) = self.max_output_bytes {
            limit = Limit::bytes(size).lines(limit.lines);
        }
        limit.lines(self.max_output_lines.unwrap_or(limit.lines))
    }
}

/// The texts in which a dialect reports engine messages.
#[derive(Clone, Copy)]
pub struct MessageTemplates {
    /// Renders an error for the model, without the prefix; `tool` is the called name.
    pub error: fn(tool: &str, error: &Error) -> Reply,
    /// The prefix of every failed call's text. JSON replies have no prefix.
    pub error_prefix: &'static str,
    /// Renders the truncation notice, which follows the kept text.
    pub notice: fn(&TruncationNotice) -> String,
    /// The text of a cancelled call.
    pub cancelled: &'static str,
}

/// The data of a truncation notice.
#[derive(Clone, Debug)]
pub struct TruncationNotice {
    /// The original size.
    pub truncation: Truncation,
    /// The kept size, in `unit`; `None` if the text shows the output in another form.
    pub kept_size: Option<u64>,
    /// The original size, in `unit`.
    pub total: u64,
    /// The unit of the limit; bytes if only the byte size is known.
    pub unit: SizeUnit,
    /// Which limit was exceeded; `None` if the tool itself omitted something.
    pub by: Option<TruncatedBy>,
    /// Which end was kept.
    pub side: TruncateSide,
    /// The limit that truncated the text.
    pub limit: Limit,
    /// The spill file, as the model can name it.
    pub file: Option<PathBuf>,
}

impl TruncationNotice {
    /// Describes the shown part: `the first 10 of 200 bytes`, or `the beginning of 200 bytes`. `number` formats
    /// numbers.
    #[must_use]
    pub fn part(&self, number: fn(u64) -> String) -> String {
        let (total, unit) = (number(self.total), self.unit);
        match (self.kept_size, self.side) {
            (Some(kept), TruncateSide::KeepHead) => format!("the first {} of {total} {unit}", number(kept)),
            (Some(kept), TruncateSide::KeepTail) => format!("the last {} of {total} {unit}", number(kept)),
            (None, TruncateSide::KeepHead) => format!("the beginning of {total} {unit}"),
            (None, TruncateSide::KeepTail) => format!("the end of {total} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_outside_of_its_range_is_replaced_with_a_note() {
        let range = ParameterRange { tool: "t", parameter: "limit", min: 10, max: 2000 };
        let applied = |mut args: Value| (range.apply(&mut args), args);
        let (note, args) = applied(json!({ "limit": 5000 }));
        assert_eq!(note.as_deref(), Some("limit was 5000; the most is 2000, which was used instead"));
        assert_eq!(args, json!({ "limit": 2000 }));
        let (note, args) = applied(json!({ "limit": 1.5 }));
        assert_eq!(note.as_deref(), Some("limit was 1.5; the least is 10, which was used instead"));
        assert_eq!(args, json!({ "limit": 10 }));
        let fine = [
            json!({ "limit": 2000 }),
            json!({ "limit": 10 }),
            json!({}),
            json!({ "limit": "x" }),
            json!({ "limit": -1 }),
        ];
        for fine in fine {
            assert_eq!(applied(fine.clone()), (None, fine));
        }
    }

    #[test]
    fn settings_replace_limits_but_not_pages() {
        const LIMITS: OutputLimits = OutputLimits {
            general: Limit::bytes(16_384),
            by_tool: &[
                ("run", Limit { size: 100, unit: helve_contract::SizeUnit::Chars, lines: 9 }),
                ("read", Limit::bytes(9)),
            ],
            paged: &["read"],
            ranges: &[],
        };
        let none = LimitSettings::default();
        assert_eq!(
            ["run", "read", "x"].map(|it| none.apply(&LIMITS, it)),
            ["run", "read", "x"].map(|it| LIMITS.for_tool(it))
        );
        let all = LimitSettings { max_output_bytes: Some(50), ..none.clone() };
        assert_eq!(all.apply(&LIMITS, "x"), Limit::bytes(50));
        assert_eq!(all.apply(&LIMITS, "run"), Limit::bytes(50).lines(9));
        assert_eq!(all.apply(&LIMITS, "read"), Limit::bytes(9));
        let one = LimitSettings { by_tool: [("run".to_owned(), 7)].into(), max_output_lines: Some(3), ..all };
        assert_eq!(one.apply(&LIMITS, "run"), Limit::bytes(7).lines(3));
    }
}
