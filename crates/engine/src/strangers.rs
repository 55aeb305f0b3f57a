//! Untrusted output: tags it as data with its origin and records the origin, in the same way for every tool.

use std::{io, path::PathBuf, sync::Arc};

use helve_contract::{
    Access, Call, Entry, Fence, Origin, PathGlob, PathRule, PathRules, Reply, ReplyFormat, Session, events::Taint,
};
use serde_json::Value;

use crate::{Engine, Spill, builder, gate};

/// Which output is untrusted, besides output that a tool declares so.
#[derive(Clone, Default)]
pub(crate) struct UntrustedSources {
    /// Tools whose output is trusted; `*` matches any characters.
    pub(crate) trusted: Vec<String>,
    /// Files with untrusted content.
    files: PathRules,
    /// The literal prefixes of their patterns.
    path_prefixes: Vec<String>,
}

/// What a call names: a command line, and paths beneath a root.
#[derive(Default)]
pub(crate) struct CallTargets {
    command: Option<String>,
    /// The directory that the command starts in.
    start: PathBuf,
    paths: Vec<PathBuf>,
    /// The same paths on the host.
    on_host: Vec<PathBuf>,
}

impl UntrustedSources {
    /// The same, with files beneath the roots that match one of these.
    pub(crate) fn with_files(mut self, globs: &[String]) -> Self {
        self.files = PathRules::new(globs.iter().map(|text| PathRule::new(PathGlob::new(text), Access::Read, "")));
        let head = |text: &String| text.split('*').next().unwrap_or(text).trim_matches('/').to_owned();
        self.path_prefixes = globs.iter().map(head).filter(|head| !head.is_empty()).collect();
        self
    }

    /// The targets of a call, if the decision depends on them.
    pub(crate) fn call_targets(&self, entry: &Entry, args: &Value, call: &Call, spill: Option<&Spill>) -> CallTargets {
        if self.path_prefixes.is_empty() && !spill.is_some_and(Spill::may_hold_untrusted) {
            return CallTargets::default();
        }
        let gate::NamedPlaces { command, start, paths, on_host } = gate::command_and_paths(&entry.spec, args, call);
        CallTargets { command, start, paths, on_host }
    }

    /// The origin of a reply, if it is untrusted.
    fn origin(
        &self,
        entry: &Entry,
        named: &CallTargets,
        call: &Call,
        reply: &Reply,
        spill: Option<&Spill>,
    ) -> Option<Origin> {
        if self.trusted.iter().any(|pattern| builder::grants(pattern, entry)) {
            return None;
        }
        if let Some(origin) = &reply.origin {
            return Some(origin.clone());
        }
        if let Some(name) = entry.untrusted_origin() {
            return Some(Origin::unmarked(name));
        }
        // The text of an error comes from the tool, unless a command ran and failed.
        if reply.is_error && reply.exit_code.is_none() {
            return None;
        }
        if let Some(name) = spill.and_then(|spill| saved_origin(spill, named, call, reply)) {
            return Some(Origin::unmarked(name));
        }
        let CallTargets { command, paths, .. } = named;
        if let Some(path) = paths.iter().find(|path| self.files.denial_reason(path, Access::Read).is_some()) {
            return Some(Origin::unmarked(format!("the file {}", path.display())));
        }
        // For a search or a command it suffices that it names such a path.
        let told = |head: &&String| {
            reply.text.contains(&format!("{head}/")) || command.as_ref().is_some_and(|it| it.contains(head.as_str()))
        };
        self.path_prefixes.iter().find(told).map(|head| Origin::unmarked(format!("files in {head}")))
    }
}

/// The origin of a spill file with untrusted text that a call reads: one that the call or the reply names, or, for a
/// command, the directory of spill files.
fn saved_origin(spill: &Spill, named: &CallTargets, call: &Call, reply: &Reply) -> Option<String> {
    if !spill.may_hold_untrusted() {
        return None;
    }
    if let Some(origin) = named.on_host.iter().find_map(|path| spill.origin_of(path)) {
        return Some(origin);
    }
    if let Some(command) = &named.command {
        if let Some(origin) = spill.origin_named_in(command) {
            return Some(origin);
        }
        let known_as = [spill.dir().display().to_string(), call.session.workspace.display_path(spill.dir())];
        let is_named = known_as.iter().any(|name| command.contains(name)) || named.start.starts_with(spill.dir());
        if let Some(origin) = is_named.then(|| spill.any_origin()).flatten() {
            return Some(origin);
        }
    }
    spill
        .origin_named_in(reply.spill_file.as_deref().unwrap_or_default())
        .or_else(|| spill.origin_named_in(&reply.text))
}

impl Engine {
    /// Tags untrusted data and records its origin. Text is tagged after truncation, so that the markers stay: the
    /// caller adds the fence.
    pub(crate) fn attribute(
        &self,
        entry: &Entry,
        named: &CallTargets,
        call: &Call,
        reply: &mut Reply,
    ) -> Option<Fence> {
        let Some(origin) = self.untrusted_sources.origin(entry, named, call, reply, self.spill.as_ref()) else {
            reply.origin = None;
            return None;
        };
        if call.session.taint.add_origin(&origin.name)
            && let Err(error) = self.record_taint(&call.uuid, &call.session.agent, &origin.name)
        {
            reply.notes.push(format!("the event could not be recorded: {error}"));
        }
        call.session.taint.record_urls(&reply.text);
        let mut fence = None;
        match (reply.format, &mut reply.data) {
            (ReplyFormat::Json, Some(Value::Object(map))) if allows_extra_field(entry.spec.output_schema.as_ref()) => {
                map.entry("origin").or_insert_with(|| Fence::field_label(&origin.name).into());
                reply.text = Value::Object(std::mem::take(map)).to_string();
                reply.data = serde_json::from_str(&reply.text).ok();
            }
            (ReplyFormat::Text, _) if !origin.marked && !reply.text.trim().is_empty() => {
                fence = Some(Fence::new(call, &origin.name, &reply.text));
            }
            _ => {}
        }
        reply.origin = Some(origin);
        fence
    }
}

impl Engine {
    fn record_taint(&self, call: &str, agent: &str, origin: &str) -> io::Result<()> {
        let taint = Taint { call_id: call.to_owned(), agent_id: agent.to_owned(), origin: origin.to_owned() };
        self.events.emit(self.redactor.event(&taint.into()))
    }

    /// Prepares untrusted text that reaches a model without a tool call, such as an attachment. Tags it with its
    /// origin, records the origin in the session, redacts secrets and escapes invisible characters.
    #[must_use]
    pub fn tag_untrusted(&self, session: &Arc<Session>, id: &str, origin: &str, text: &str) -> String {
        let call = Call::new(id, session.clone());
        if session.taint.add_origin(origin) {
            // A failed record is no reason to lose the text.
            _ = self.record_taint(&call.uuid, &session.agent, origin);
        }
        session.taint.record_urls(text);
        let mut reply = Reply { text: Fence::new(&call, origin, text).wrap(text), ..Reply::default() };
        self.redactor.redact_reply(&mut reply);
        crate::unseen::escape_invisible(&mut reply);
        reply.text
    }
}

/// Whether the schema permits an additional field.
pub(crate) fn allows_extra_field(schema: Option<&Value>) -> bool {
    schema.and_then(|it| it.get("additionalProperties")) != Some(&Value::Bool(false))
}
