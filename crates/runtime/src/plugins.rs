//! Starts the configured plugins in the sandbox: programs that provide tools.

use std::{
    collections::BTreeSet,
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::{Access, Entry, Error, PathStyle, Result, Root, RootPermission, Workspace, ports::Host};
use tokio::runtime::Runtime;

use crate::{
    config::{PluginProgram, Settings},
    print, remark,
};

/// Starts the configured plugins. Returns their tools and whether all started. A plugin that does not start is reported
/// and left out.
pub fn start(
    settings: &Settings,
    workspace: &Workspace,
    host: &Arc<dyn Host>,
    runtime: &Runtime,
) -> (Vec<Entry>, bool) {
    let (mut tools, mut all_started) = (Vec::new(), true);
    for program in settings.config.all_plugins() {
        let shown = program.argv().join(" ");
        let log = {
            let shown = shown.clone();
            Arc::new(move |text: &str| remark!("{shown}: {}", print::escape_for_terminal(text.trim_end())))
        };
        let begun = place(program, workspace).map(|it| helve_plugins::start(it, host.clone(), log));
        match begun.and_then(|it| runtime.block_on(it)) {
            Ok(more) => tools.extend(more),
            Err(error) => {
                all_started = false;
                remark!("helve: the plugin {shown} is left out: {error}");
            }
        }
    }
    (tools, all_started)
}

/// How to start a plugin: in the workspace, with the session's roots, and read access to its own directories.
fn place(program: &PluginProgram, session: &Workspace) -> Result<helve_plugins::PluginConfig> {
    let roots = session.roots();
    let mut argv = program.argv();
    let env = program.env.clone().into_iter().collect();
    let first = argv.first_mut().ok_or_else(|| Error::failed("it has no path"))?;
    let program = found(Path::new(&*first)).canonicalize().map_err(|error| Error::failed(error.to_string()))?;
    *first = found(Path::new(&*first)).to_string_lossy().into_owned();
    // A script is not in the directory of its interpreter.
    let scripts = argv[1..].iter().map(Path::new).filter(|it| it.is_absolute() && it.is_file());
    let scripts = scripts.filter_map(|it| it.canonicalize().ok());
    // A directory in the workspace is already readable, with the permission of its root.
    let is_covered = |dir: &Path| roots.iter().any(|root| dir.starts_with(&root.dir));
    let folders = std::iter::once(program).chain(scripts).filter_map(|it| it.parent().map(Path::to_owned));
    let own: BTreeSet<PathBuf> = folders.filter(|it| !is_covered(it)).collect();
    let own = own.iter().map(Root::readable);
    let roots: Vec<Root> = roots.iter().map(|root| (**root).clone()).chain(own).collect();
    let rights: Vec<_> = roots.iter().map(|root| (root.dir.clone(), root.rights)).collect();
    let workspace = Workspace::new(roots, session.rules().clone(), PathStyle::Absolute);
    let reach = rights
        .iter()
        .map(|(dir, rights)| {
            let access = if *rights == RootPermission::Write { Access::Write } else { Access::Read };
            workspace.check(dir, access, None)
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(helve_plugins::PluginConfig {
        env,
        ..helve_plugins::PluginConfig::new(argv, workspace.primary_root(Access::Read)?, reach)
    })
}

/// A program by its path, or by its name in `PATH`.
fn found(program: &Path) -> PathBuf {
    let named = program.components().count() == 1 && !program.is_absolute();
    let places = env::var_os("PATH").unwrap_or_default();
    let inside =
        env::split_paths(&places).map(|it| it.join(program)).find(|it| named && it.is_absolute() && it.is_file());
    inside.unwrap_or_else(|| program.to_owned())
}
