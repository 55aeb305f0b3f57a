//! What stands against words of strangers, by the settings: what is taken out of replies, what may not leave, what is
//! asked after a stranger has spoken.

use helve_contract::{Session, Taint};
use helve_engine::{Builder, Caution, Commands, Gate, Scrub};

use crate::{config::Settings, fault::Fault, state};

/// Settings that name a variable with a key in it.
const KEYS: [&str; 3] = ["model.key_env", "memory.embeddings_key_env", "search.key_env"];

/// The same engine in the making, with everything that is against secrets and strangers.
pub fn guarded(settings: &Settings, builder: Builder) -> Builder {
    builder
        .scrub(scrub(settings))
        .trusting(settings.list("policy.trusted"))
        .untrusted_files(&settings.list("policy.untrusted"))
        .commands(commands(settings))
}

/// The same gate, as careful after a stranger's words as the settings want.
pub fn careful(settings: &Settings, gate: Gate) -> Gate {
    gate.caution(caution(settings))
}

/// What a session of its own needs: a memory of strangers, and letters that nobody else knows.
pub fn prepare(settings: &Settings, session: &mut Session) -> Result<(), Fault> {
    session.taint = match (caution(settings), settings.text("policy.taint_until")) {
        (Caution::Off, _) => Taint::off(),
        (_, Some("message")) => Taint::until_the_user_speaks(),
        _ => Taint::new(),
    };
    session.salt = state::random_id()?;
    Ok(())
}

fn caution(settings: &Settings) -> Caution {
    settings.text("policy.taint").and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// What is taken out of replies, and what may not leave.
fn scrub(settings: &Settings) -> Scrub {
    let canaries = settings.list("secrets.canaries");
    if !settings.flag("scrub.enabled") {
        return Scrub::none().with_canaries(&canaries);
    }
    let named = settings.list("scrub.secrets_env").into_iter();
    let keys = KEYS.iter().filter_map(|key| settings.text(key).map(str::to_owned));
    let secrets: Vec<_> = named.chain(keys).filter_map(|name| std::env::var(name).ok()).collect();
    Scrub::with_secrets(secrets).with_canaries(&canaries)
}

/// Whether what a command is told can leave the machine.
fn commands(settings: &Settings) -> Commands {
    let offline = settings.text("sandbox.network") == Some("off")
        && !matches!(settings.text("sandbox.level"), Some("none" | "external"))
        && !settings.flag("host_commands.enabled")
        && (settings.text("host.kind") != Some("docker") || settings.text("host.docker.network") == Some("none"));
    if offline { Commands::Inside } else { Commands::Online }
}
