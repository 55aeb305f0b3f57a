//! A tool as the engine sees it: what to tell the model, and what to run.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    AccessFn, AccessRequest, Annotations, ArgumentProblem, Call, CapabilityProfile, Effects, Error, PatternPurpose,
    PortSet, Reply, Result, Tier, Tool,
    names::{name_matches, underscored},
};

/// What the model is told about a tool, and what the engine must know.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The name the model calls: `^[A-Za-z0-9_-]{1,64}$`.
    pub name: String,
    /// Other names that lead here.
    pub aliases: Vec<String>,
    /// Further names that rules use for this tool, of any length. A call may use one that no other tool has.
    pub rule_names: Vec<String>,
    /// What it does, from the doc comment; empty where there is none.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the data that comes back, where it has a shape.
    pub output_schema: Option<Value>,
    /// What a call can do.
    pub effects: Effects,
    /// The seed's own tier, where it differs from what the effects say.
    pub tier: Option<Tier>,
    /// How long a call may take; [`Duration::MAX`] for a tool that keeps its own clock.
    pub timeout: Duration,
    /// The ports that a call cannot do without. A session that lacks one does not offer the tool.
    pub needs: PortSet,
    /// The capability profile that a call runs with; `None` leaves it the whole workspace.
    pub profile: Option<CapabilityProfile>,
    /// Reads from arguments what a call would use; `None` for a tool known only at run time.
    pub access: Option<AccessFn>,
    /// The MCP annotations of a tool from outside. `None`: they follow from the effects.
    pub annotations: Option<Annotations>,
}

impl Spec {
    /// The description, or `None` where the tool has no doc comment.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        Some(self.description.as_str()).filter(|text| !text.is_empty())
    }

    /// The hints that MCP clients get. The gate does not use them.
    #[must_use]
    pub fn annotations(&self) -> Annotations {
        self.annotations.unwrap_or(self.effects.annotations())
    }

    /// How much a call can change.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier.unwrap_or(self.effects.tier())
    }

    /// Whether this name means the tool: its name or an alias, also with `_` in place of `-`.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let spells = |own: &String| own == name || (own.contains('-') && underscored(own) == name);
        std::iter::once(&self.name).chain(&self.aliases).any(spells)
    }

    /// Whether a pattern with `*` covers this tool, by its name, an alias or a name for rules.
    #[must_use]
    pub fn is_covered_by(&self, pattern: &str, purpose: PatternPurpose) -> bool {
        let names = std::iter::once(&self.name).chain(&self.aliases);
        // A name for rules may be the plain name of another tool: only its exact spelling grants anything.
        let exact = match purpose {
            PatternPurpose::Grant => PatternPurpose::Exact,
            other => other,
        };
        names.into_iter().any(|name| name_matches(pattern, name, purpose))
            || self.rule_names.iter().any(|name| name_matches(pattern, name, exact))
    }

    /// The declaration that a model gets: name, description and parameters.
    #[must_use]
    pub fn function_decl(&self) -> FunctionDecl {
        let description = Some(self.description.clone()).filter(|it| !it.is_empty());
        FunctionDecl { name: self.name.clone(), description, parameters: self.input_schema.clone() }
    }
}

/// The declaration of a tool for a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionDecl {
    /// The name the model calls.
    pub name: String,
    /// What the tool does; `None` without a doc comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

impl FunctionDecl {
    /// The declaration of a tool under its own name.
    #[must_use]
    pub fn of<T: Tool>() -> Self {
        Entry::from_tool::<T>().spec.function_decl()
    }
}

/// What an entry runs.
pub type RunFn = dyn Fn(Value, Call) -> BoxFuture<'static, Result<Reply>> + Send + Sync;

/// A tool as the engine sees it. Cheap to clone.
#[derive(Clone)]
pub struct Entry {
    /// What the model is told.
    pub spec: Arc<Spec>,
    tool: Option<&'static str>,
    origin: Option<Arc<str>>,
    run: Arc<RunFn>,
}

impl Entry {
    /// A tool in its own words.
    #[must_use]
    pub fn from_tool<T: Tool>() -> Self {
        Self::row::<T, T, _>(T::NAME, |output| output)
    }

    /// One row of a dialect: the model sends `A` to `name`, `T` runs, the answer goes through `reply`.
    #[must_use]
    pub fn row<A, T, R>(name: &str, reply: fn(T::Output) -> R) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        T: Tool + TryFrom<A, Error: Into<Error>>,
        R: Into<Reply> + 'static,
    {
        let (description, schema) = describe_type::<A>();
        let spec = Spec {
            name: name.to_owned(),
            aliases: Vec::new(),
            rule_names: Vec::new(),
            annotations: None,
            description,
            input_schema: schema,
            output_schema: None,
            effects: T::EFFECTS,
            tier: None,
            timeout: T::TIMEOUT,
            needs: T::NEEDS,
            profile: None,
            access: Some(requested::<A, T>),
        };
        let entry = Self::dynamic(spec, move |args, call| {
            async move {
                let args: A = serde_json::from_value(args).map_err(invalid_args_error)?;
                let tool = T::try_from(args).map_err(Into::into)?;
                Ok(reply(tool.run(&call).await?).into())
            }
            .boxed()
        });
        Self { tool: Some(T::NAME), ..entry }
    }

    /// A tool known only at run time: from an MCP server, a plugin, a WASM module.
    pub fn dynamic<F>(spec: Spec, run: F) -> Self
    where
        F: Fn(Value, Call) -> BoxFuture<'static, Result<Reply>> + Send + Sync + 'static,
    {
        Self { spec: Arc::new(spec), tool: None, origin: None, run: Arc::new(run) }
    }

    /// The same tool under another spec.
    #[must_use]
    pub fn map_spec(mut self, change: impl FnOnce(&mut Spec)) -> Self {
        change(Arc::make_mut(&mut self.spec));
        self
    }

    /// The same tool, also called by these names.
    #[must_use]
    pub fn with_aliases(self, names: &[&str]) -> Self {
        self.map_spec(|spec| spec.aliases.extend(names.iter().map(|name| (*name).to_owned())))
    }

    /// The same tool with the shape of the data it answers.
    #[must_use]
    pub fn with_output_schema<O: JsonSchema>(self) -> Self {
        self.map_spec(|spec| spec.output_schema = Some(describe_type::<O>().1))
    }

    /// The same tool, confined to a capability profile.
    #[must_use]
    pub fn confined(self, profile: CapabilityProfile) -> Self {
        self.map_spec(|spec| spec.profile = Some(profile))
    }

    /// The name of the tool that runs, whatever this dialect calls it; none for one known only at run time.
    #[must_use]
    pub fn tool_name(&self) -> Option<&'static str> {
        self.tool
    }

    /// The same tool, whose answers are the words of a stranger: of this server, of this program.
    #[must_use]
    pub fn with_untrusted_origin(self, name: &str) -> Self {
        Self { origin: Some(name.into()), ..self }
    }

    /// Whose words its answers are, where they are a stranger's.
    #[must_use]
    pub fn untrusted_origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Runs the tool, with no gate before it. Only the engine calls this.
    pub fn run(&self, args: Value, call: Call) -> BoxFuture<'static, Result<Reply>> {
        (self.run)(args, call)
    }
}

/// What the tool of a row would use with these arguments.
fn requested<A, T>(args: &Value) -> Option<AccessRequest>
where
    A: DeserializeOwned,
    T: Tool + TryFrom<A>,
{
    T::try_from(A::deserialize(args).ok()?).ok()?.access()
}

/// The doc comment and the schema of a type, in the plain form that every provider takes: nothing by reference.
fn describe_type<A: JsonSchema>() -> (String, Value) {
    let settings = SchemaSettings::draft2020_12().with(|it| {
        it.inline_subschemas = true;
        it.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>();
    schema.remove("title");
    let description = schema.remove("description").and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default();
    let mut schema = Value::from(schema);
    simplify_schema(&mut schema);
    // Providers refuse an object schema that does not list its properties, even where there are none.
    if let Value::Object(map) = &mut schema
        && map.get("type").is_some_and(|it| it == "object")
    {
        map.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    (description, schema)
}

/// Drops what only Rust knows (`format: uint`, `null` beside an optional's type, defaults of null).
fn simplify_schema(schema: &mut Value) {
    if let Value::Object(map) = schema {
        map.remove("format");
        if map.get("default").is_some_and(Value::is_null) {
            map.remove("default");
        }
        if let Some(Value::Array(types)) = map.get_mut("type") {
            types.retain(|it| it != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                map.insert("type".into(), only);
            }
        }
        if let Some(Value::Array(values)) = map.get_mut("enum") {
            values.retain(|it| !it.is_null());
        }
        if let Some(Value::Array(any)) = map.get_mut("anyOf") {
            any.retain(|it| it.get("type") != Some(&Value::from("null")));
            if let [Value::Object(only)] = any.as_slice() {
                let only = only.clone();
                map.remove("anyOf");
                for (key, value) in only {
                    map.entry(key).or_insert(value);
                }
            }
        }
        if let Some(Value::Array(any)) = map.get("oneOf") {
            // Variants with a doc comment each come as constants; a model needs their names only.
            let names: Option<Vec<Value>> =
                any.iter().map(|it| it.get("const").filter(|it| it.is_string()).cloned()).collect();
            if let Some(names) = names {
                map.remove("oneOf");
                map.insert("type".into(), "string".into());
                map.insert("enum".into(), names.into());
            }
        }
        for (key, value) in map {
            match value {
                // The names in here are parameters, not words of the schema.
                Value::Object(fields) if key == "properties" => fields.values_mut().for_each(simplify_schema),
                value => simplify_schema(value),
            }
        }
    } else if let Value::Array(items) = schema {
        items.iter_mut().for_each(simplify_schema);
    }
}

fn invalid_args_error(error: serde_json::Error) -> Error {
    Error::InvalidArgs(vec![ArgumentProblem::Other {
        path: String::new(),
        text: format!("the arguments do not fit: {error}"),
    }])
}
