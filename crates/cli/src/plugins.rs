//! Plugins: programs of the user's choice that bring tools of their own, started in the sandbox.

use std::{path::Path, sync::Arc};

use helve_contract::{Access, Entry, Error, PathRules, Reading, Result, Rights, Root, Workspace, ports::Host};
use tokio::runtime::Runtime;

use crate::{config::Settings, print, remark};

/// Starts the plugins that the settings name, and returns their tools. One that does not start is told and left out.
pub(crate) fn start(settings: &Settings, roots: &[Arc<Root>], host: &Arc<dyn Host>, runtime: &Runtime) -> Vec<Entry> {
    let mut tools = Vec::new();
    for argv in settings.plugins() {
        let shown = argv.join(" ");
        let log = {
            let shown = shown.clone();
            Arc::new(move |text: &str| remark!("{shown}: {}", print::harmless(text.trim_end())))
        };
        let begun = place(argv, roots).map(|it| helve_plugins::start(it, host.clone(), log));
        match begun.and_then(|it| runtime.block_on(it)) {
            Ok(more) => tools.extend(more),
            Err(error) => remark!("helve: the plugin {shown} is left out: {error}"),
        }
    }
    tools
}

/// How a plugin is started: in the workspace, with the session's roots, and its own folder to read.
fn place(argv: Vec<String>, roots: &[Arc<Root>]) -> Result<helve_plugins::Settings> {
    let program = argv.first().map(Path::new).ok_or_else(|| Error::failed("it has no path"))?;
    let program = program.canonicalize().map_err(|error| Error::failed(error.to_string()))?;
    let own = program.parent().map(Root::readable);
    let roots: Vec<Root> = roots.iter().map(|root| (**root).clone()).chain(own).collect();
    let rights: Vec<_> = roots.iter().map(|root| (root.dir.clone(), root.rights)).collect();
    let workspace = Workspace::new(roots, PathRules::default(), Reading::Absolute);
    let reach = rights
        .iter()
        .map(|(dir, rights)| {
            let access = if *rights == Rights::Write { Access::Write } else { Access::Read };
            workspace.check(dir, access, None)
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(helve_plugins::Settings::new(argv, workspace.top(Access::Read)?, reach))
}
