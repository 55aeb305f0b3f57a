//! A compiled module and its calls: each in a separate store, on a blocking thread, in fuel slices.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use helve_contract::{Call, CancellationToken, Entry, Error, PortSet, Reply, Result, Spec, events::WasmCall};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinHandle,
};
use wasmi::{
    Config, Engine, ExternType, Linker, Module, Store, TrapCode, TypedResumableCall, WasmResults,
    errors::{ErrorKind, InstantiationError},
};

use super::{
    AuditLog, ModuleManifest, WasmConfig,
    bridge::{HostBridge, HostJob},
    component::Component,
    files::DescriptorTable,
    guest::{GuestError, GuestState, HaltReason, MAX_STDOUT_BYTES, WasiErrno},
    profile::{ModuleProfile, Mount},
    wasi,
};

/// The largest module.
const MAX_MODULE_BYTES: u64 = 64 * 1024 * 1024;
/// The value stack of a module, in bytes.
const STACK_BYTES: usize = 1024 * 1024;
/// How deep its functions may call each other.
const MAX_CALL_DEPTH: usize = 10_000;
/// Steps between two looks at the clock: some milliseconds.
const FUEL_SLICE: u64 = 5_000_000;
/// How many modules run at once, of all sessions: each holds a thread and its memory, and the host needs threads too.
static MODULE_SLOTS: Semaphore = Semaphore::const_new(16);
/// How a component begins, where a module has its version.
const COMPONENT_MAGIC: &[u8] = b"\0asm\x0d\0\x01\0";

/// A program that is ready to run.
pub(super) enum CompiledModule {
    /// A plain module.
    Module(Module, Linker<GuestState>),
    /// A component.
    Component(Component),
}

/// Reads, checks and compiles a module.
pub(super) fn compile(path: &Path) -> Result<CompiledModule> {
    let told = |why: String| Error::failed(format!("the module {}: {why}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| told(error.to_string()))?;
    file.take(MAX_MODULE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| told(error.to_string()))?;
    if bytes.len() as u64 > MAX_MODULE_BYTES {
        return Err(told(format!("more than {MAX_MODULE_BYTES} bytes")));
    }
    if bytes.starts_with(COMPONENT_MAGIC) {
        let mut config = config();
        // A start function is metered and bounded, but cannot be sliced: it gets one slice.
        config.allow_start_fn(true);
        return Component::new(Engine::new(&config), &bytes).map(CompiledModule::Component).map_err(told);
    }
    // A start function would run unmetered; programs have `_start` instead.
    let engine = Engine::new(config().allow_start_fn(false));
    let module = Module::new(&engine, &bytes).map_err(|error| told(error.to_string()))?;
    let exports = |name: &str| module.get_export(name);
    if !matches!((exports("_start"), exports("memory")), (Some(ExternType::Func(_)), Some(ExternType::Memory(_)))) {
        return Err(told("it exports no `_start` and `memory`; build it as a program, not as a library".into()));
    }
    let linker = wasi::link(&module).map_err(|error| told(error.to_string()))?;
    Ok(CompiledModule::Module(module, linker))
}

fn config() -> Config {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        .set_max_stack_height(STACK_BYTES)
        .set_max_recursion_depth(MAX_CALL_DEPTH)
        .set_max_cached_stacks(2)
        .ignore_custom_sections(true)
        .wasm_multi_memory(false)
        .wasm_custom_page_sizes(false);
    config
}

/// The module as a tool.
pub(super) fn entry(
    settings: WasmConfig,
    definition: ModuleManifest,
    module: CompiledModule,
    audit: AuditLog,
) -> Entry {
    let spec = Spec {
        name: definition.name.clone(),
        aliases: Vec::new(),
        rule_names: Vec::new(),
        annotations: None,
        description: definition.description.clone(),
        input_schema: definition.parameters.clone(),
        output_schema: None,
        effects: definition.effects(),
        tier: None,
        // The tool has its own timeout, which starts with the module.
        timeout: Duration::MAX,
        needs: PortSet::NONE,
        profile: Some(definition.profile),
        access: None,
    };
    let stranger = format!("the module tool {}", definition.name);
    let tool = Arc::new(WasmTool { settings, definition, module, audit, calls: AtomicU64::new(0) });
    Entry::dynamic(spec, move |args, call| {
        let tool = tool.clone();
        async move { tool.call(args, &call).await }.boxed()
    })
    .with_untrusted_origin(&stranger)
}

struct WasmTool {
    settings: WasmConfig,
    definition: ModuleManifest,
    module: CompiledModule,
    audit: AuditLog,
    calls: AtomicU64,
}

impl WasmTool {
    /// One call. Arguments were checked by the engine before.
    async fn call(self: Arc<Self>, args: Value, call: &Call) -> Result<Reply> {
        let mounts = self.definition.profile.mounts(&call.session.workspace)?;
        let record = self.record(&mounts);
        (self.audit)(&record);
        let turn = tokio::select! {
            turn = MODULE_SLOTS.acquire() => turn.map_err(|error| Error::Internal(error.into()))?,
            () = call.cancel.cancelled() => return Err(Error::Cancelled),
        };

        let WasmConfig { fuel, memory, deadline, .. } = self.settings;
        let (bridge, asked) = HostBridge::to(call.session.ports.host.clone());
        let input = json!({"op": self.definition.operation(), "args": args}).to_string().into_bytes();
        let stop = CancellationToken::new();
        let _stops_with_the_call = stop.clone().drop_guard();
        let guest = GuestState::new(input, DescriptorTable::new(mounts, bridge, memory), memory, stop, deadline);
        let tool = self.clone();
        // The slot is held by the thread, which may end a little later than the call.
        let work = tokio::task::spawn_blocking(move || {
            let run = tool.module.run(guest, fuel);
            drop(turn);
            run
        });
        let run = tokio::select! {
            run = serve_host_jobs(asked, work) => run?,
            () = call.cancel.cancelled() => return Err(Error::Cancelled),
            () = tokio::time::sleep(deadline) => return Err(Error::Timeout(deadline)),
        };
        let mut reply = self.to_reply(run)?;
        // A record of names and paths can always be written.
        reply.notes.push(format!("audit {}", serde_json::to_string(&record).unwrap_or_default()));
        Ok(reply)
    }

    fn record(&self, mounts: &[Mount]) -> WasmCall {
        let ModuleManifest { name, profile, .. } = &self.definition;
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        WasmCall {
            request_id: format!("{name}-{number}"),
            operation: self.definition.operation().to_owned(),
            tool_name: name.clone(),
            profile: *profile,
            mounts: mounts.iter().map(Mount::to_audit_json).collect(),
        }
    }

    /// What a run means to whoever called.
    fn to_reply(&self, run: ModuleRun) -> Result<Reply> {
        let said = String::from_utf8_lossy(&run.words);
        let said = if said.trim().is_empty() { String::new() } else { format!(" It said: {}", said.trim()) };
        let name = &self.definition.name;
        let failed = |why: String| Err(Error::failed(format!("the module of {name} {why}.{said}")));
        let code = match run.ending {
            ModuleExit::Exit(code) => code,
            ModuleExit::Halt(HaltReason::Abandoned) => return Err(Error::Cancelled),
            ModuleExit::Halt(HaltReason::TimedOut) => return Err(Error::Timeout(self.settings.deadline)),
            ModuleExit::Halt(HaltReason::Internal) => {
                return Err(Error::Internal(io::Error::other(HaltReason::Internal.to_string()).into()));
            }
            ModuleExit::Halt(HaltReason::AbiViolation(why)) => return failed(format!("broke off: {why}")),
            ModuleExit::Halt(HaltReason::OutputLimit) => {
                return failed(format!("wrote more than {MAX_STDOUT_BYTES} bytes and was ended"));
            }
            ModuleExit::Fuel => {
                return failed(format!("was ended after {} steps; give it less to do", self.settings.fuel));
            }
            ModuleExit::Memory => {
                return failed(format!("wanted more than {} bytes of memory and was ended", self.settings.memory));
            }
            ModuleExit::WriteFailed(errno) => {
                return failed(format!("ended with a file that could not be written (error {})", errno.0));
            }
            ModuleExit::Trap(why) => return failed(format!("broke off: {why}")),
        };
        match (serde_json::from_slice(&run.output), code) {
            (Ok(ModuleOutput { ok: Some(text), err: None }), 0) => Ok(text.into()),
            (Ok(ModuleOutput { ok: None, err: Some(text) }), _) => Ok(Reply::error(text)),
            (_, 0) => failed("did not answer with one JSON object {\"ok\": text} or {\"err\": text}".into()),
            (_, code) => failed(format!("ended with code {code} and without an error of its own")),
        }
    }
}

/// What a module writes to standard output.
#[derive(Deserialize)]
struct ModuleOutput {
    ok: Option<String>,
    err: Option<String>,
}

/// Does what the module asks for until it has ended.
async fn serve_host_jobs(mut asked: mpsc::Receiver<HostJob>, mut work: JoinHandle<ModuleRun>) -> Result<ModuleRun> {
    loop {
        tokio::select! {
            run = &mut work => return run.map_err(|error| Error::Internal(error.into())),
            Some(job) = asked.recv() => job.await,
        }
    }
}

/// How a run went.
struct ModuleRun {
    ending: ModuleExit,
    output: Vec<u8>,
    words: Vec<u8>,
}

/// Why a module ended.
#[derive(Debug)]
enum ModuleExit {
    Exit(i32),
    Halt(HaltReason),
    Fuel,
    Memory,
    WriteFailed(WasiErrno),
    Trap(String),
}

impl CompiledModule {
    /// Runs the module from its beginning to its end, in a memory of its own.
    fn run(&self, guest: GuestState, fuel: u64) -> ModuleRun {
        let engine = match self {
            Self::Module(module, _) => module.engine(),
            Self::Component(component) => component.engine(),
        };
        let mut store = Store::new(engine, guest);
        store.limiter(|guest| &mut guest.memory_limits);
        let ending = self.execute(&mut store, fuel).unwrap_or_else(|error| ModuleExit::of(&error));
        let mut guest = store.into_data();
        let saved = if matches!(ending, ModuleExit::Exit(_)) { guest.files.finish() } else { Ok(()) };
        let ending = match (saved, guest.write_error) {
            (Ok(()), Some(errno)) if matches!(ending, ModuleExit::Exit(_)) => ModuleExit::WriteFailed(errno),
            (Ok(()), _) => ending,
            (Err(GuestError::Errno(errno)), _) => ModuleExit::WriteFailed(errno),
            (Err(GuestError::Halt(halt)), _) => ModuleExit::Halt(halt),
        };
        ModuleRun { ending, output: guest.output, words: guest.stderr_tail }
    }

    fn execute(&self, store: &mut Store<GuestState>, fuel: u64) -> Result<ModuleExit, wasmi::Error> {
        let mut left = fuel;
        add_fuel(store, &mut left, FUEL_SLICE)?;
        match self {
            Self::Module(module, linker) => {
                let instance = linker.instantiate_and_start(&mut *store, module)?;
                let start = instance.get_typed_func::<(), ()>(&*store, "_start")?;
                let state = start.call_resumable(&mut *store, ())?;
                resume_in_slices(store, state, left, |()| 0)
            }
            Self::Component(component) => {
                let begun = component.instantiate(store).map_err(|error| match error.as_trap_code() {
                    Some(TrapCode::OutOfFuel) if left > 0 => {
                        HaltReason::AbiViolation("its parts take too long to start").into()
                    }
                    _ => error,
                });
                let state = begun?.call_resumable(&mut *store, ())?;
                resume_in_slices(store, state, left, |failed: u32| i32::from(failed != 0))
            }
        }
    }
}

/// Lets a program go on, slice by slice, until it ends or is ended.
fn resume_in_slices<T: WasmResults>(
    store: &mut Store<GuestState>,
    mut state: TypedResumableCall<T>,
    mut left: u64,
    exit: impl FnOnce(T) -> i32,
) -> Result<ModuleExit, wasmi::Error> {
    loop {
        state = match state {
            TypedResumableCall::Finished(result) => return Ok(ModuleExit::Exit(exit(result))),
            TypedResumableCall::HostTrap(trap) => return Ok(ModuleExit::of(trap.host_error())),
            TypedResumableCall::OutOfFuel(pause) => {
                store.data().check_running()?;
                if left == 0 || pause.required_fuel() > left.saturating_add(store.get_fuel()?) {
                    return Ok(ModuleExit::Fuel);
                }
                add_fuel(store, &mut left, FUEL_SLICE.max(pause.required_fuel()))?;
                pause.resume(&mut *store)?
            }
        }
    }
}

/// Takes steps from what is left, and gives them to the module.
fn add_fuel(store: &mut Store<GuestState>, left: &mut u64, steps: u64) -> Result<(), wasmi::Error> {
    let steps = steps.min(*left);
    *left -= steps;
    let has = store.get_fuel()?;
    store.set_fuel(has.saturating_add(steps))
}

impl ModuleExit {
    fn of(error: &wasmi::Error) -> Self {
        if let Some(halt) = error.downcast_ref::<HaltReason>() {
            return Self::Halt(*halt);
        }
        if let Some(code) = error.i32_exit_status() {
            return Self::Exit(code);
        }
        match error.as_trap_code() {
            Some(TrapCode::OutOfFuel) => Self::Fuel,
            Some(TrapCode::GrowthOperationLimited | TrapCode::OutOfSystemMemory) => Self::Memory,
            Some(TrapCode::StackOverflow) => Self::Trap("its functions call each other too deeply".into()),
            _ if matches!(
                error.kind(),
                ErrorKind::Instantiation(
                    InstantiationError::FailedToInstantiateMemory(_) | InstantiationError::FailedToInstantiateTable(_)
                )
            ) =>
            {
                Self::Memory
            }
            _ => Self::Trap(error.to_string()),
        }
    }
}
