//! Components: core modules with a link plan. The plan is created when a component is loaded and executed at every
//! call.
//!
//! Supports programs (`wasi:cli/run`) as toolchains produce them: core modules that import WASI 0.2 functions and
//! each other's exports. The parser checks types; the plan ignores them.

use std::collections::BTreeMap;

use wasmi::{Engine, Extern, ExternType, Func, FuncType, Instance, Memory, Module, Store, TypedFunc};
use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ComponentExternalKind, ComponentInstance,
    Instance as CoreInstance, Parser, Payload, Validator,
};

use super::{
    canonical::HostFunction,
    guest::{GuestState, HaltReason},
    wasi2,
};

/// What a program exports, without its version.
const RUN_INTERFACE: &str = "wasi:cli/run";
/// How deep components may lie in each other, and how many modules and parts there may be.
const MAX_DEPTH: usize = 8;
const MAX_PARTS: usize = 256;

/// A component that is ready to run.
pub(super) struct Component {
    engine: Engine,
    steps: Vec<InstantiateStep>,
    run: CoreItem,
}

/// A module that is put in place, with what it is given.
struct InstantiateStep {
    module: Module,
    imports: Vec<(CoreItem, Option<FuncType>)>,
}

/// Something that core modules give each other.
#[derive(Clone)]
enum CoreItem {
    /// An export of a module that is in place already.
    Export { step: usize, name: String },
    /// A function of ours, and where it finds the component's memory.
    Host { function: &'static HostFunction, memory: Option<Box<CoreItem>>, realloc: Option<Box<CoreItem>> },
    /// Lets go of something.
    Drop,
    /// An import that ends the component when it is called.
    Absent,
}

/// Something that components give each other.
#[derive(Clone)]
enum ComponentItem<'a> {
    Function(ComponentFunction),
    Instance(InstanceParts<'a>),
    Module(Module),
    Component(&'a [u8]),
    Type,
}

/// A function between components.
#[derive(Clone)]
enum ComponentFunction {
    /// Of an interface of ours.
    Imported { interface: String, name: String },
    /// Made from a core function.
    Lifted(CoreItem),
}

/// An instance of a component: one that we are asked for, or named parts.
#[derive(Clone)]
enum InstanceParts<'a> {
    Imported(String),
    Named(BTreeMap<String, ComponentItem<'a>>),
}

/// An instance of a core module, or named parts.
#[derive(Clone)]
enum CoreInstanceParts {
    Step(usize),
    Named(BTreeMap<String, CoreItem>),
}

impl Component {
    /// Validates a component and creates its plan; the error names what is missing.
    pub(super) fn new(engine: Engine, bytes: &[u8]) -> Result<Self, String> {
        Validator::new().validate_all(bytes).map_err(|error| error.to_string())?;
        let mut plan = LinkPlan { engine, steps: Vec::new(), missing: Vec::new(), memories: 0, parts: 0 };
        let exports = plan.visit(bytes, None, 0)?;
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
        let mut runs =
            exports.into_iter().filter(|(name, _)| strip_version(name).is_some_and(|it| it == RUN_INTERFACE));
        let Some((_, ComponentItem::Instance(InstanceParts::Named(parts)))) = runs.next() else {
            return Err(format!("it exports no `{RUN_INTERFACE}`; build it as a program, not as a library"));
        };
        match parts.get("run") {
            Some(ComponentItem::Function(ComponentFunction::Lifted(run))) => {
                Ok(Self { engine: plan.engine, steps: plan.steps, run: run.clone() })
            }
            _ => Err(format!("its `{RUN_INTERFACE}` has no function of its own")),
        }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Instantiates its modules. Returns the function that runs it; 0 means success.
    pub(super) fn instantiate(&self, store: &mut Store<GuestState>) -> Result<TypedFunc<(), u32>, wasmi::Error> {
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
    core: &CoreItem,
    kind: Option<&FuncType>,
    placed: &[Instance],
    store: &mut Store<GuestState>,
) -> Result<Extern, wasmi::Error> {
    let none = || FuncType::new([], []);
    Ok(match core {
        CoreItem::Export { step, name } => {
            let found = placed.get(*step).and_then(|it| it.get_export(&*store, name));
            found.ok_or(HaltReason::AbiViolation("a part of it lacks what another needs"))?
        }
        CoreItem::Host { function: host, memory, realloc } => {
            let memory = memory.as_ref().map(|it| memory_of(it, placed, store)).transpose()?;
            let realloc = realloc.as_ref().map(|it| function(it, placed, store)).transpose()?;
            let host = *host;
            let serve = move |mut caller: wasmi::Caller<'_, GuestState>, args: &[_], results: &mut [_]| {
                host.serve(&mut caller, (memory, realloc), args, results)
            };
            Func::new(&mut *store, host.kind(), serve).into()
        }
        CoreItem::Drop => Func::wrap(&mut *store, |mut caller: wasmi::Caller<'_, GuestState>, number: u32| {
            let guest = caller.data_mut();
            guest.check_running().and_then(|()| guest.drop_handle(number)).map_err(wasmi::Error::from)
        })
        .into(),
        CoreItem::Absent => Func::new(&mut *store, kind.cloned().unwrap_or_else(none), |_, _, _| {
            Err(HaltReason::AbiViolation("it wants the network, and there is none").into())
        })
        .into(),
    })
}

fn function(core: &CoreItem, placed: &[Instance], store: &mut Store<GuestState>) -> Result<Func, wasmi::Error> {
    let found = resolve(core, None, placed, store)?.into_func();
    found.ok_or_else(|| HaltReason::AbiViolation("a part of it is no function").into())
}

fn memory_of(core: &CoreItem, placed: &[Instance], store: &mut Store<GuestState>) -> Result<Memory, wasmi::Error> {
    let found = resolve(core, None, placed, store)?.into_memory();
    found.ok_or_else(|| HaltReason::AbiViolation("a part of it is no memory").into())
}

/// The name of an interface of version 0.2, without the version.
fn strip_version(name: &str) -> Option<&str> {
    let (name, version) = name.split_once('@')?;
    version.starts_with("0.2.").then_some(name)
}

/// A plan that is being made.
struct LinkPlan {
    engine: Engine,
    steps: Vec<InstantiateStep>,
    missing: Vec<String>,
    memories: u32,
    parts: usize,
}

/// What is numbered inside of one component.
#[derive(Default)]
struct IndexSpaces<'a> {
    modules: Vec<Module>,
    core_instances: Vec<CoreInstanceParts>,
    core_functions: Vec<CoreItem>,
    core_tables: Vec<CoreItem>,
    core_memories: Vec<CoreItem>,
    core_globals: Vec<CoreItem>,
    core_tags: Vec<CoreItem>,
    components: Vec<&'a [u8]>,
    instances: Vec<InstanceParts<'a>>,
    functions: Vec<ComponentFunction>,
}

impl LinkPlan {
    /// Visits one component and returns its exports. Without `given` it is the outermost one and gets the host's
    /// interfaces.
    fn visit<'a>(
        &mut self,
        bytes: &'a [u8],
        given: Option<&BTreeMap<String, ComponentItem<'a>>>,
        depth: usize,
    ) -> Result<BTreeMap<String, ComponentItem<'a>>, String> {
        self.parts += 1;
        if depth > MAX_DEPTH || self.parts > MAX_PARTS {
            return Err("its parts lie in each other too deeply, or are too many".into());
        }
        let mut scope = IndexSpaces::default();
        let mut exports = BTreeMap::new();
        // What lies inside of another part comes by as well; it is looked at when that part is.
        let mut inside = 0;
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(parse_error)?;
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
                        let parts = self.core_instance(&scope, instance.map_err(parse_error)?)?;
                        scope.core_instances.push(parts);
                    }
                }
                Payload::ComponentInstanceSection(all) => {
                    for instance in all {
                        let parts = self.instance(&scope, instance.map_err(parse_error)?, depth)?;
                        scope.instances.push(parts);
                    }
                }
                Payload::ComponentAliasSection(all) => {
                    for alias in all {
                        scope.alias(&alias.map_err(parse_error)?)?;
                    }
                }
                Payload::ComponentCanonicalSection(all) => {
                    for made in all {
                        self.canonical(&mut scope, made.map_err(parse_error)?)?;
                    }
                }
                Payload::ComponentImportSection(all) => {
                    for import in all {
                        let import = import.map_err(parse_error)?;
                        let item = match given {
                            None => root_import(import.name.0, import.ty.kind())?,
                            Some(given) => given.get(import.name.0).cloned().unwrap_or(ComponentItem::Type),
                        };
                        scope.add(item);
                    }
                }
                Payload::ComponentExportSection(all) => {
                    for export in all {
                        let export = export.map_err(parse_error)?;
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

    fn core_instance(
        &mut self,
        scope: &IndexSpaces<'_>,
        instance: CoreInstance<'_>,
    ) -> Result<CoreInstanceParts, String> {
        let (module, args) = match instance {
            CoreInstance::FromExports(exports) => {
                let named = exports.iter().map(|it| Ok((it.name.to_owned(), at(scope.core(it.kind), it.index)?)));
                return Ok(CoreInstanceParts::Named(named.collect::<Result<_, String>>()?));
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
                CoreItem::Host { function, .. } => kind.as_ref() == Some(&function.kind()),
                _ => true,
            };
            if !fits {
                return Err(format!("it uses `{}` in another form than WASI 0.2 has it", import.name()));
            }
            imports.push((core, kind));
        }
        self.steps.push(InstantiateStep { module, imports });
        if self.steps.len() > MAX_PARTS {
            return Err("it has too many parts".into());
        }
        Ok(CoreInstanceParts::Step(self.steps.len() - 1))
    }

    fn instance<'a>(
        &mut self,
        scope: &IndexSpaces<'a>,
        instance: ComponentInstance<'a>,
        depth: usize,
    ) -> Result<InstanceParts<'a>, String> {
        match instance {
            ComponentInstance::FromExports(exports) => {
                let named = exports.iter().map(|it| Ok((it.name.0.to_owned(), scope.item(it.kind, it.index)?)));
                Ok(InstanceParts::Named(named.collect::<Result<_, String>>()?))
            }
            ComponentInstance::Instantiate { component_index, args } => {
                let given = args.iter().map(|it| Ok((it.name.to_owned(), scope.item(it.kind, it.index)?)));
                let given = given.collect::<Result<_, String>>()?;
                let component = at(&scope.components, component_index)?;
                self.visit(component, Some(&given), depth + 1).map(InstanceParts::Named)
            }
        }
    }

    fn canonical(&mut self, scope: &mut IndexSpaces<'_>, made: CanonicalFunction) -> Result<(), String> {
        match made {
            CanonicalFunction::Lift { core_func_index, options, .. } => {
                check_options(&options)?;
                let core = at(&scope.core_functions, core_func_index)?;
                scope.functions.push(ComponentFunction::Lifted(core));
            }
            CanonicalFunction::Lower { func_index, options } => {
                check_options(&options)?;
                let core = match at(&scope.functions, func_index)? {
                    ComponentFunction::Imported { interface, name } => {
                        self.lowered(scope, &interface, &name, &options)?
                    }
                    ComponentFunction::Lifted(_) => {
                        return Err("a part of it calls another: such components do not run here".into());
                    }
                };
                scope.core_functions.push(core);
            }
            CanonicalFunction::ResourceDrop { .. } => scope.core_functions.push(CoreItem::Drop),
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
        scope: &IndexSpaces<'_>,
        interface: &str,
        name: &str,
        options: &[CanonicalOption],
    ) -> Result<CoreItem, String> {
        let plain = strip_version(interface);
        if plain.is_some_and(|it| it.starts_with("wasi:sockets/")) {
            return Ok(CoreItem::Absent);
        }
        let Some(function) = plain.and_then(|it| wasi2::function(it, name)) else {
            let from = if interface.is_empty() { String::new() } else { format!(" of `{interface}`") };
            self.missing.push(format!("`{name}`{from}"));
            return Ok(CoreItem::Absent);
        };
        let (mut memory, mut realloc) = (None, None);
        for option in options {
            match option {
                CanonicalOption::Memory(index) => memory = Some(Box::new(at(&scope.core_memories, *index)?)),
                CanonicalOption::Realloc(index) => realloc = Some(Box::new(at(&scope.core_functions, *index)?)),
                _ => {}
            }
        }
        Ok(CoreItem::Host { function, memory, realloc })
    }
}

impl<'a> IndexSpaces<'a> {
    fn core(&self, kind: wasmparser::ExternalKind) -> &[CoreItem] {
        match kind {
            wasmparser::ExternalKind::Func => &self.core_functions,
            wasmparser::ExternalKind::Table => &self.core_tables,
            wasmparser::ExternalKind::Memory => &self.core_memories,
            wasmparser::ExternalKind::Global => &self.core_globals,
            wasmparser::ExternalKind::Tag => &self.core_tags,
        }
    }

    fn core_export(&self, instance: u32, name: &str) -> Result<CoreItem, String> {
        match at(&self.core_instances, instance)? {
            CoreInstanceParts::Step(step) => Ok(CoreItem::Export { step, name: name.to_owned() }),
            CoreInstanceParts::Named(parts) => {
                parts.get(name).cloned().ok_or_else(|| format!("a module of it lacks `{name}`"))
            }
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
                    InstanceParts::Imported(interface) if *kind == ComponentExternalKind::Func => {
                        ComponentItem::Function(ComponentFunction::Imported { interface, name: (*name).to_owned() })
                    }
                    InstanceParts::Imported(interface) => {
                        return Err(format!("it needs the {} {name} of {interface}", kind.desc()));
                    }
                    InstanceParts::Named(parts) => {
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

    fn item(&self, kind: ComponentExternalKind, index: u32) -> Result<ComponentItem<'a>, String> {
        Ok(match kind {
            ComponentExternalKind::Func => ComponentItem::Function(at(&self.functions, index)?),
            ComponentExternalKind::Instance => ComponentItem::Instance(at(&self.instances, index)?),
            ComponentExternalKind::Module => ComponentItem::Module(at(&self.modules, index)?),
            ComponentExternalKind::Component => ComponentItem::Component(at(&self.components, index)?),
            ComponentExternalKind::Type => ComponentItem::Type,
            ComponentExternalKind::Value => {
                return Err("it passes values about: such components do not run here".into());
            }
        })
    }

    fn add(&mut self, item: ComponentItem<'a>) {
        match item {
            ComponentItem::Function(function) => self.functions.push(function),
            ComponentItem::Instance(parts) => self.instances.push(parts),
            ComponentItem::Module(module) => self.modules.push(module),
            ComponentItem::Component(bytes) => self.components.push(bytes),
            ComponentItem::Type => {}
        }
    }
}

/// What the outermost component imports.
fn root_import<'a>(name: &str, kind: ComponentExternalKind) -> Result<ComponentItem<'a>, String> {
    Ok(match kind {
        ComponentExternalKind::Instance => ComponentItem::Instance(InstanceParts::Imported(name.to_owned())),
        ComponentExternalKind::Func => {
            ComponentItem::Function(ComponentFunction::Imported { interface: String::new(), name: name.to_owned() })
        }
        ComponentExternalKind::Type => ComponentItem::Type,
        _ => return Err(format!("it needs the {} {name}, which is not offered", kind.desc())),
    })
}

/// How many memories a module has of its own.
fn memories(module: &[u8]) -> Result<u32, String> {
    let mut sum = 0;
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::MemorySection(memories) = payload.map_err(parse_error)? {
            sum += memories.count();
        }
    }
    Ok(sum)
}

fn check_options(options: &[CanonicalOption]) -> Result<(), String> {
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

fn parse_error(error: wasmparser::BinaryReaderError) -> String {
    error.to_string()
}
