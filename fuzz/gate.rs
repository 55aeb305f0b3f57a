// The check of the fuzz target `gate`. A test includes this file to replay the corpus.

use std::sync::Arc;

use helve_contract::{Call, PathRules, Ports, Root, Session, Workspace, ports::NoHost};
use helve_engine::{Dialect, Engine, Gate, Mode, Rule};

/// A tool's name and its arguments, with a zero byte between them: the gate explains every call, with and without
/// rules, and says of an approval what the prompt shows.
pub(crate) fn check(data: &[u8], dialect: &Dialect) {
    let Some(at) = data.iter().position(|byte| *byte == 0) else { return };
    let (Ok(name), Ok(args)) = (std::str::from_utf8(&data[..at]), std::str::from_utf8(&data[at + 1..])) else { return };
    for rules in [&[][..], &["Edit(src/**)", "Bash(ls:*)", "Read(**/*.pem)"]] {
        let rules = rules.iter().filter_map(|it| Rule::parse(it).ok());
        let gate = rules.fold(Gate::new(Mode::Default), |gate, rule| gate.deny(rule.clone()).allow(rule));
        let Ok(engine) = Engine::builder(dialect.clone()).gate(gate).build() else { return };
        let workspace =
            Workspace::new([Root::writable("/w").with_name("shared")], PathRules::default(), dialect.path_style);
        let session = Session::new("trial", workspace, Ports::new(Arc::new(NoHost)));
        let call = Call::new("trial", Arc::new(session));
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
        let explained = runtime.block_on(engine.explain(name, args.to_owned(), &call));
        if let Some(question) = explained.question {
            assert!(!question.summary.is_empty(), "{name} {args}");
        }
    }
}
