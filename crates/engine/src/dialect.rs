//! A dialect: a table of tools, and how their model is spoken to.

use std::{collections::BTreeMap, path::PathBuf};

use helve_contract::{
    Entry, Error, Limit, PathStyle, Port, PortSet, Reply, SizeUnit, TruncateSide, TruncatedBy, Truncation,
};
use serde_json::Value;

/// Everything that makes one dialect: what the model calls, how it writes paths, how it is answered.
#[derive(Clone)]
pub struct Dialect {
    /// Its name: `claude`.
    pub name: &'static str,
    /// One line about it, for people.
    pub description: &'static str,
    /// The tools, in the order in which the model sees them.
    pub tools: Vec<Entry>,
    /// Rows that another crate supplies while the program runs, such as tools over the resources of MCP servers.
    pub external: &'static [ExternalRow],
    /// The named sets of tools that a session can choose from: the seed's roles or presets.
    pub roles: &'static [Role],
    /// The role when none is chosen; `None` gives every tool.
    pub default_role: Option<&'static str>,
    /// How its model writes paths.
    pub path_style: PathStyle,
    /// What fits into a reply, by tool.
    pub limits: OutputLimits,
    /// How it is told of errors, cuts and the like.
    pub templates: MessageTemplates,
    /// What is asked before a call, when nothing else is configured.
    pub mode: crate::Mode,
}

impl Dialect {
    /// Whether a row of its table needs this port.
    pub fn needs(&self, port: Port) -> bool {
        let rows = self.tools.iter().map(|entry| entry.spec.needs).chain(self.external.iter().map(|row| row.needs));
        rows.into_iter().any(|needs| needs.has(port))
    }
}

/// A named set of tools: a seed's role or preset.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Its name: `readonly`, `captain`.
    pub name: &'static str,
    /// The tools it has, by name; `["*"]` is all of them.
    pub tools: &'static [&'static str],
    /// Whether tools of plugins, modules and MCP servers belong to it too.
    pub imports: bool,
}

/// A row of a dialect's table whose tool is built outside of the dialect.
#[derive(Clone, Copy, Debug)]
pub struct ExternalRow {
    /// The name that the model calls.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// The ports that it needs.
    pub needs: PortSet,
}

/// What fits into a reply.
#[derive(Clone, Copy, Debug)]
pub struct OutputLimits {
    /// For every tool that is not named below.
    pub general: Limit,
    /// For single tools, by name.
    pub by_tool: &'static [(&'static str, Limit)],
    /// Tools that return pages and say how to read the next one. Their limit only has to hold a page, and settings do
    /// not change it.
    pub paged: &'static [&'static str],
    /// The ranges of optional numbers. A number outside of its range is replaced by the nearest one inside, and the model
    /// gets a note.
    pub ranges: &'static [ParameterRange],
}

/// The range of a number that a call may send.
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
    /// Replaces a number outside of the range. The note for the model says what was used instead.
    pub(crate) fn apply(&self, args: &mut Value) -> Option<String> {
        let Self { parameter, min, max, .. } = *self;
        let value = args.get_mut(parameter)?;
        let number = value.as_f64()?;
        let (used, what) = match number {
            _ if number > f64::from(max) => (max, "most"),
            // A negative size is a mistake, which the schema refuses.
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

/// How a dialect words what the engine says.
#[derive(Clone, Copy)]
pub struct MessageTemplates {
    /// An error of any kind, for the model, without the prefix; `tool` is the name it called.
    pub error: fn(tool: &str, error: &Error) -> Reply,
    /// What the text of every failed call begins with, whoever wrote the text. JSON replies have no prefix.
    pub error_prefix: &'static str,
    /// The line that tells of a cut. It stands after the text that was kept.
    pub notice: fn(&TruncationNotice) -> String,
    /// What a call says that was cancelled.
    pub cancelled: &'static str,
}

/// What there is to say about a cut.
#[derive(Clone, Debug)]
pub struct TruncationNotice {
    /// What the whole was.
    pub truncation: Truncation,
    /// How much was kept, in `unit`; `None` where the text shows the output in another form.
    pub kept_size: Option<u64>,
    /// The size of the whole, in `unit`.
    pub total: u64,
    /// The unit of the limit; bytes where nothing else is known of the whole.
    pub unit: SizeUnit,
    /// Whether the size or the number of lines was too large; `None` where the tool itself left something out.
    pub by: Option<TruncatedBy>,
    /// Which end was kept.
    pub side: TruncateSide,
    /// The limit that cut it.
    pub limit: Limit,
    /// The file with the whole, as the model can name it.
    pub file: Option<PathBuf>,
}

impl TruncationNotice {
    /// Which part of the whole is shown: `the first 10 of 200 bytes`, or `the beginning of 200 bytes`. Numbers are
    /// formatted by `number`.
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
