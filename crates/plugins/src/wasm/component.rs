//! Components: core modules with a plan of how they are put together. The plan is made once, when a component is
//! loaded, and followed at every call.
//!
//! Programs are understood (`wasi:cli/run`), in the shape that toolchains give them: core modules that import functions
//! of WASI 0.2 and each other's exports. Types are checked by the parser and are nothing to the plan.

use std::collections::BTreeMap;

use wasmi::{Engine, Extern, ExternType, Func, FuncType, Instance, Memory, Module, Store, TypedFunc};
use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ComponentExternalKind, ComponentInstance,
    Instance as CoreInstance, Parser, Payload, Validator,
};

use super::{
    canonical::Function,
    guest::{Guest, Halt},
    wasi2,
};

/// What a program exports, without its version.
const RUN: &str = "wasi:cli/run";
/// How deep components may lie in each other, and how many modules and parts there may be.
const DEPTH: usize = 8;
const PARTS: usize = 256;

/// A component that is ready to run.
pub(super) struct Component {
    engine: Engine,
    steps: Vec<Step>,
    run: Core,
}

/// A module that is put in place, with what it is given.
struct Step {
    module: Module,
    imports: Vec<(Core, Option<FuncType>)>,
}

/// Something that core modules give each other.
#[derive(Clone)]
enum Core {
    /// An export of a module that is in place already.
    Export { step: usize, name: String },
    /// A function of ours, and where it finds the component's memory.
    Host { function: &'static Function, memory: Option<Box<Core>>, realloc: Option<Box<Core>> },
    /// Lets go of something.
    Drop,
    /// A function that is named, and ends the component when it is called.
    Absent,
}

/// Something that components give each other.
#[derive(Clone)]
enum Item<'a> {
    Function(Callable),
    Instance(Parts<'a>),
    Module(Module),
    Component(&'a [u8]),
    Type,
}

/// A function between components.
#[derive(Clone)]
enum Callable {
    /// Of an interface of ours.
    Imported { interface: String, name: String },
    /// Made from a core function.
    Lifted(Core),
}

/// An instance of a component: one that we are asked for, or named parts.
#[derive(Clone)]
enum Parts<'a> {
    Imported(String),
    Named(BTreeMap<String, Item<'a>>),
}

/// An instance of a core module, or named parts.
#[derive(Clone)]
enum CoreParts {
    Step(usize),
    Named(BTreeMap<String, Core>),
}

impl Component {
    /// Checks a component and makes its plan; or says what it needs that is not there.
    pub(super) fn new(engine: Engine, bytes: &[u8]) -> Result<Self, String> {
        Validator::new().validate_all(bytes).map_err(|error| error.to_string())?;
        let mut plan = Plan { engine, steps: Vec::new(), missing: Vec::new(), memories: 0, parts: 0 };
        let exports = plan.of(bytes, None, 0)?;
        if !plan.missing.is_empty() {
            plan.missing.truncate(3);
            return Err(format!(
                "it needs {}, which is not offered; a tool may use wasi:cli, wasi:io, wasi:clocks, wasi:random and \
                 wasi:filesystem, version 0.2",
                plan.missing.join(", ")
            ));
        }
        if plan.memories > 1 {
            return Err("it has more than one memory: components that were joined into one do not run here".into());
        }
        let mut runs = exports.into_iter().filter(|(name, _)| own(name).is_some_and(|it| it == RUN));
        let Some((_, Item::Instance(Parts::Named(parts)))) = runs.next() else {
            return Err(format!("it exports no `{RUN}`; build it as a program, not as a library"));
        };
        match parts.get("run") {
            Some(Item::Function(Callable::Lifted(run))) => {
                Ok(Self { engine: plan.engine, steps: plan.steps, run: run.clone() })
            }
            _ => Err(format!("its `{RUN}` has no function of its own")),
        }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Puts its modules in place. What comes back runs it; 0 is a good end.
    pub(super) fn begin(&self, store: &mut Store<Guest>) -> Result<TypedFunc<(), u32>, wasmi::Error> {
        let mut placed = Vec::new();
        for step in &self.steps {
            let imports = step.imports.iter().map(|(core, kind)| resolve(core, kind.as_ref(), &placed, store));
            let imports = imports.collect::<Result<Vec<_>, _>>()?;
            placed.push(Instance::new(&mut *store, &step.module, &imports)?);
        }
        function(&self.run, &placed, store)?.typed(&*store)
    }
}

fn resolve(
    core: &Core,
    kind: Option<&FuncType>,
    placed: &[Instance],
    store: &mut Store<Guest>,
) -> Result<Extern, wasmi::Error> {
    let none = || FuncType::new([], []);
    Ok(match core {
        Core::Export { step, name } => {
            let found = placed.get(*step).and_then(|it| it.get_export(&*store, name));
            found.ok_or(Halt::Misuse("a part of it lacks what another needs"))?
        }
        Core::Host { function: host, memory, realloc } => {
            let memory = memory.as_ref().map(|it| memory_of(it, placed, store)).transpose()?;
            let realloc = realloc.as_ref().map(|it| function(it, placed, store)).transpose()?;
            let host = *host;
            let serve = move |mut caller: wasmi::Caller<'_, Guest>, args: &[_], results: &mut [_]| {
                host.serve(&mut caller, (memory, realloc), args, results)
            };
            Func::new(&mut *store, host.kind(), serve).into()
        }
        Core::Drop => Func::wrap(&mut *store, |mut caller: wasmi::Caller<'_, Guest>, number: u32| {
            let guest = caller.data_mut();
            guest.may_go_on().and_then(|()| guest.let_go(number)).map_err(wasmi::Error::from)
        })
        .into(),
        Core::Absent => Func::new(&mut *store, kind.cloned().unwrap_or_else(none), |_, _, _| {
            Err(Halt::Misuse("it wants the network, and there is none").into())
        })
        .into(),
    })
}

fn function(core: &Core, placed: &[Instance], store: &mut Store<Guest>) -> Result<Func, wasmi::Error> {
    let found = resolve(core, None, placed, store)?.into_func();
    found.ok_or_else(|| Halt::Misuse("a part of it is no function").into())
}

fn memory_of(core: &Core, placed: &[Instance], store: &mut Store<Guest>) -> Result<Memory, wasmi::Error> {
    let found = resolve(core, None, placed, store)?.into_memory();
    found.ok_or_else(|| Halt::Misuse("a part of it is no memory").into())
}

/// The name of an interface of version 0.2, without the version.
fn own(name: &str) -> Option<&str> {
    let (name, version) = name.split_once('@')?;
    version.starts_with("0.2.").then_some(name)
}

/// A plan that is being made.
struct Plan {
    engine: Engine,
    steps: Vec<Step>,
    missing: Vec<String>,
    memories: u32,
    parts: usize,
}

/// What is numbered inside of one component.
#[derive(Default)]
struct Scope<'a> {
    modules: Vec<Module>,
    core_instances: Vec<CoreParts>,
    core_functions: Vec<Core>,
    core_tables: Vec<Core>,
    core_memories: Vec<Core>,
    core_globals: Vec<Core>,
    core_tags: Vec<Core>,
    components: Vec<&'a [u8]>,
    instances: Vec<Parts<'a>>,
    functions: Vec<Callable>,
}

impl Plan {
    /// Follows one component from its beginning to its end, and returns what it exports. Without `given` it is the
    /// outermost, and gets what we have.
    fn of<'a>(
        &mut self,
        bytes: &'a [u8],
        given: Option<&BTreeMap<String, Item<'a>>>,
        depth: usize,
    ) -> Result<BTreeMap<String, Item<'a>>, String> {
        self.parts += 1;
        if depth > DEPTH || self.parts > PARTS {
            return Err("its parts lie in each other too deeply, or are too many".into());
        }
        let mut scope = Scope::default();
        let mut exports = BTreeMap::new();
        // What lies inside of another part comes by as well; it is looked at when that part is.
        let mut inside = 0;
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(bad)?;
            if inside > 0 {
                match payload {
                    Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => inside += 1,
                    Payload::End(_) => inside -= 1,
                    _ => {}
                }
                continue;
            }
            match payload {
                Payload::ModuleSection { unchecked_range, .. } => {
                    inside += 1;
                    let module = bytes.get(unchecked_range).ok_or("a module of it is cut off")?;
                    self.memories += memories(module)?;
                    self.parts += 1;
                    scope.modules.push(Module::new(&self.engine, module).map_err(|error| error.to_string())?);
                }
                Payload::ComponentSection { unchecked_range, .. } => {
                    inside += 1;
                    scope.components.push(bytes.get(unchecked_range).ok_or("a part of it is cut off")?);
                }
                Payload::InstanceSection(all) => {
                    for instance in all {
                        let parts = self.core_instance(&scope, instance.map_err(bad)?)?;
                        scope.core_instances.push(parts);
                    }
                }
                Payload::ComponentInstanceSection(all) => {
                    for instance in all {
                        let parts = self.instance(&scope, instance.map_err(bad)?, depth)?;
                        scope.instances.push(parts);
                    }
                }
                Payload::ComponentAliasSection(all) => {
                    for alias in all {
                        scope.alias(&alias.map_err(bad)?)?;
                    }
                }
                Payload::ComponentCanonicalSection(all) => {
                    for made in all {
                        self.canonical(&mut scope, made.map_err(bad)?)?;
                    }
                }
                Payload::ComponentImportSection(all) => {
                    for import in all {
                        let import = import.map_err(bad)?;
                        let item = match given {
                            None => asked(import.name.0, import.ty.kind())?,
                            Some(given) => given.get(import.name.0).cloned().unwrap_or(Item::Type),
                        };
                        scope.add(item);
                    }
                }
                Payload::ComponentExportSection(all) => {
                    for export in all {
                        let export = export.map_err(bad)?;
                        let item = scope.item(export.kind, export.index)?;
                        scope.add(item.clone());
                        exports.insert(export.name.0.to_owned(), item);
                    }
                }
                Payload::ComponentStartSection { .. } => return Err("it has a start function of its own".into()),
                _ => {}
            }
        }
        Ok(exports)
    }

    fn core_instance(&mut self, scope: &Scope<'_>, instance: CoreInstance<'_>) -> Result<CoreParts, String> {
        let (module, args) = match instance {
            CoreInstance::FromExports(exports) => {
                let named = exports.iter().map(|it| Ok((it.name.to_owned(), at(scope.core(it.kind), it.index)?)));
                return Ok(CoreParts::Named(named.collect::<Result<_, String>>()?));
            }
            CoreInstance::Instantiate { module_index, args } => (at(&scope.modules, module_index)?, args),
        };
        let mut imports = Vec::new();
        for import in module.imports() {
            let arg = args.iter().rev().find(|it| it.name == import.module());
            let arg = arg.ok_or_else(|| format!("a module of it lacks `{}`", import.module()))?;
            let core = scope.core_export(arg.index, import.name())?;
            let kind = match import.ty() {
                ExternType::Func(kind) => Some(kind.clone()),
                _ => None,
            };
            let fits = match &core {
                Core::Host { function, .. } => kind.as_ref() == Some(&function.kind()),
                _ => true,
            };
            if !fits {
                return Err(format!("it uses `{}` in another form than WASI 0.2 has it", import.name()));
            }
            imports.push((core, kind));
        }
        self.steps.push(Step { module, imports });
        if self.steps.len() > PARTS {
            return Err("it has too many parts".into());
        }
        Ok(CoreParts::Step(self.steps.len() - 1))
    }

    fn instance<'a>(
        &mut self,
        scope: &Scope<'a>,
        instance: ComponentInstance<'a>,
        depth: usize,
    ) -> Result<Parts<'a>, String> {
        match instance {
            ComponentInstance::FromExports(exports) => {
                let named = exports.iter().map(|it| Ok((it.name.0.to_owned(), scope.item(it.kind, it.index)?)));
                Ok(Parts::Named(named.collect::<Result<_, String>>()?))
            }
            ComponentInstance::Instantiate { component_index, args } => {
                let given = args.iter().map(|it| Ok((it.name.to_owned(), scope.item(it.kind, it.index)?)));
                let given = given.collect::<Result<_, String>>()?;
                let component = at(&scope.components, component_index)?;
                self.of(component, Some(&given), depth + 1).map(Parts::Named)
            }
        }
    }

    fn canonical(&mut self, scope: &mut Scope<'_>, made: CanonicalFunction) -> Result<(), String> {
        match made {
            CanonicalFunction::Lift { core_func_index, options, .. } => {
                known(&options)?;
                let core = at(&scope.core_functions, core_func_index)?;
                scope.functions.push(Callable::Lifted(core));
            }
            CanonicalFunction::Lower { func_index, options } => {
                known(&options)?;
                let core = match at(&scope.functions, func_index)? {
                    Callable::Imported { interface, name } => self.lowered(scope, &interface, &name, &options)?,
                    Callable::Lifted(_) => {
                        return Err("a part of it calls another: such components do not run here".into());
                    }
                };
                scope.core_functions.push(core);
            }
            CanonicalFunction::ResourceDrop { .. } => scope.core_functions.push(Core::Drop),
            other => {
                let shown = format!("{other:?}");
                let shown = shown.split([' ', '(']).next().unwrap_or_default();
                return Err(format!("it uses {shown}, which programs of WASI 0.2 do not need"));
            }
        }
        Ok(())
    }

    /// A function of ours as a core module calls it.
    fn lowered(
        &mut self,
        scope: &Scope<'_>,
        interface: &str,
        name: &str,
        options: &[CanonicalOption],
    ) -> Result<Core, String> {
        let plain = own(interface);
        if plain.is_some_and(|it| it.starts_with("wasi:sockets/")) {
            return Ok(Core::Absent);
        }
        let Some(function) = plain.and_then(|it| wasi2::function(it, name)) else {
            let from = if interface.is_empty() { String::new() } else { format!(" of `{interface}`") };
            self.missing.push(format!("`{name}`{from}"));
            return Ok(Core::Absent);
        };
        let (mut memory, mut realloc) = (None, None);
        for option in options {
            match option {
                CanonicalOption::Memory(index) => memory = Some(Box::new(at(&scope.core_memories, *index)?)),
                CanonicalOption::Realloc(index) => realloc = Some(Box::new(at(&scope.core_functions, *index)?)),
                _ => {}
            }
        }
        Ok(Core::Host { function, memory, realloc })
    }
}

impl<'a> Scope<'a> {
    fn core(&self, kind: wasmparser::ExternalKind) -> &[Core] {
        match kind {
            wasmparser::ExternalKind::Func => &self.core_functions,
            wasmparser::ExternalKind::Table => &self.core_tables,
            wasmparser::ExternalKind::Memory => &self.core_memories,
            wasmparser::ExternalKind::Global => &self.core_globals,
            wasmparser::ExternalKind::Tag => &self.core_tags,
        }
    }

    fn core_export(&self, instance: u32, name: &str) -> Result<Core, String> {
        match at(&self.core_instances, instance)? {
            CoreParts::Step(step) => Ok(Core::Export { step, name: name.to_owned() }),
            CoreParts::Named(parts) => parts.get(name).cloned().ok_or_else(|| format!("a module of it lacks `{name}`")),
        }
    }

    fn alias(&mut self, alias: &ComponentAlias<'a>) -> Result<(), String> {
        match alias {
            ComponentAlias::CoreInstanceExport { kind, instance_index, name } => {
                let core = self.core_export(*instance_index, name)?;
                match kind {
                    wasmparser::ExternalKind::Func => self.core_functions.push(core),
                    wasmparser::ExternalKind::Table => self.core_tables.push(core),
                    wasmparser::ExternalKind::Memory => self.core_memories.push(core),
                    wasmparser::ExternalKind::Global => self.core_globals.push(core),
                    wasmparser::ExternalKind::Tag => self.core_tags.push(core),
                }
            }
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Type, .. }
            | ComponentAlias::Outer {
                kind: wasmparser::ComponentOuterAliasKind::Type | wasmparser::ComponentOuterAliasKind::CoreType,
                ..
            } => {}
            ComponentAlias::InstanceExport { kind, instance_index, name } => {
                let item = match at(&self.instances, *instance_index)? {
                    Parts::Imported(interface) if *kind == ComponentExternalKind::Func => {
                        Item::Function(Callable::Imported { interface, name: (*name).to_owned() })
                    }
                    Parts::Imported(interface) => {
                        return Err(format!("it needs the {} {name} of {interface}", kind.desc()));
                    }
                    Parts::Named(parts) => {
                        parts.get(*name).cloned().ok_or_else(|| format!("a part of it lacks `{name}`"))?
                    }
                };
                self.add(item);
            }
            ComponentAlias::Outer { .. } => {
                return Err("its parts share modules: such components do not run here".into());
            }
        }
        Ok(())
    }

    fn item(&self, kind: ComponentExternalKind, index: u32) -> Result<Item<'a>, String> {
        Ok(match kind {
            ComponentExternalKind::Func => Item::Function(at(&self.functions, index)?),
            ComponentExternalKind::Instance => Item::Instance(at(&self.instances, index)?),
            ComponentExternalKind::Module => Item::Module(at(&self.modules, index)?),
            ComponentExternalKind::Component => Item::Component(at(&self.components, index)?),
            ComponentExternalKind::Type => Item::Type,
            ComponentExternalKind::Value => {
                return Err("it passes values about: such components do not run here".into());
            }
        })
    }

    fn add(&mut self, item: Item<'a>) {
        match item {
            Item::Function(function) => self.functions.push(function),
            Item::Instance(parts) => self.instances.push(parts),
            Item::Module(module) => self.modules.push(module),
            Item::Component(bytes) => self.components.push(bytes),
            Item::Type => {}
        }
    }
}

/// What the outermost component imports.
fn asked<'a>(name: &str, kind: ComponentExternalKind) -> Result<Item<'a>, String> {
    Ok(match kind {
        ComponentExternalKind::Instance => Item::Instance(Parts::Imported(name.to_owned())),
        ComponentExternalKind::Func => {
            Item::Function(Callable::Imported { interface: String::new(), name: name.to_owned() })
        }
        ComponentExternalKind::Type => Item::Type,
        _ => return Err(format!("it needs the {} {name}, which is not offered", kind.desc())),
    })
}

/// How many memories a module has of its own.
fn memories(module: &[u8]) -> Result<u32, String> {
    let mut sum = 0;
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::MemorySection(memories) = payload.map_err(bad)? {
            sum += memories.count();
        }
    }
    Ok(sum)
}

fn known(options: &[CanonicalOption]) -> Result<(), String> {
    let other = options.iter().any(|it| {
        matches!(
            it,
            CanonicalOption::UTF16
                | CanonicalOption::CompactUTF16
                | CanonicalOption::Async
                | CanonicalOption::Callback(_)
        )
    });
    if other {
        Err("its texts are UTF-16, or its calls come back later: neither is understood here".into())
    } else {
        Ok(())
    }
}

fn at<T: Clone>(all: &[T], index: u32) -> Result<T, String> {
    all.get(index as usize).cloned().ok_or_else(|| "it names a part that it does not have".into())
}

fn bad(error: wasmparser::BinaryReaderError) -> String {
    error.to_string()
}
