//! `Entry` and `Spec`: a tool as the engine sees it, with its declaration for the model and the function that runs.

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

/// The declaration of a tool for the model, and its properties for the engine.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The name that the model calls: `^[A-Za-z0-9_-]{1,64}$`.
    pub name: String,
    /// Further names that call this tool.
    pub aliases: Vec<String>,
    /// Further names of this tool in rules, of any length. A call may use one that no other tool has.
    pub rule_names: Vec<String>,
    /// The description from the doc comment; empty without one.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the reply's data, if the reply has a fixed structure.
    pub output_schema: Option<Value>,
    /// The effects that a call can have.
    pub effects: Effects,
    /// The tier that the seed defines, where it differs from the one derived from the effects.
    pub tier: Option<Tier>,
    /// The timeout of a call; [`Duration::MAX`] for a tool with a timeout of its own.
    pub timeout: Duration,
    /// The ports that a call requires. A session without one of them does not offer the tool.
    pub needs: PortSet,
    /// The capability profile of a call; `None` gives it the whole workspace.
    pub profile: Option<CapabilityProfile>,
    /// Derives from the arguments what a call would access; `None` for a tool known only at run time.
    pub access: Option<AccessFn>,
    /// The MCP annotations of an external tool. `None`: they are derived from the effects.
    pub annotations: Option<Annotations>,
}

impl Spec {
    /// The description, or `None` where the tool has no doc comment.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        Some(self.description.as_str()).filter(|text| !text.is_empty())
    }

    /// The annotations for MCP clients. The gate does not use them.
    #[must_use]
    pub fn annotations(&self) -> Annotations {
        self.annotations.unwrap_or(self.effects.annotations())
    }

    /// The safety tier: how much a call can change.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier.unwrap_or(self.effects.tier())
    }

    /// Whether `name` means this tool: its name or an alias, also with `_` in place of `-`.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let spells = |own: &String| own == name || (own.contains('-') && underscored(own) == name);
        std::iter::once(&self.name).chain(&self.aliases).any(spells)
    }

    /// Whether a pattern with `*` covers this tool by its name, an alias or a rule name.
    #[must_use]
    pub fn is_covered_by(&self, pattern: &str, purpose: PatternPurpose) -> bool {
        let names = std::iter::once(&self.name).chain(&self.aliases);
        // A rule name may equal the name of another tool, so only its exact spelling grants anything.
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
    /// The name that the model calls.
    pub name: String,
    /// The description; `None` without a doc comment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

impl FunctionDecl {
    /// The declaration of a tool under its default name.
    #[must_use]
    pub fn of<T: Tool>() -> Self {
        Entry::from_tool::<T>().spec.function_decl()
    }
}

/// The function that an entry runs.
pub type RunFn = dyn Fn(Value, Call) -> BoxFuture<'static, Result<Reply>> + Send + Sync;

/// A tool as the engine sees it. Cheap to clone.
#[derive(Clone)]
pub struct Entry {
    /// The declaration and properties of the tool.
    pub spec: Arc<Spec>,
    tool: Option<&'static str>,
    origin: Option<Arc<str>>,
    run: Arc<RunFn>,
}

impl Entry {
    /// A tool under its default name, with its own parameters and reply.
    #[must_use]
    pub fn from_tool<T: Tool>() -> Self {
        Self::row::<T, T, _>(T::NAME, |output| output)
    }

    /// One row of a dialect: the model sends `A` to `name`, `T` runs, and `reply` formats the output.
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

    /// A tool known only at run time: from an MCP server, a plugin or a WebAssembly module.
    pub fn dynamic<F>(spec: Spec, run: F) -> Self
    where
        F: Fn(Value, Call) -> BoxFuture<'static, Result<Reply>> + Send + Sync + 'static,
    {
        Self { spec: Arc::new(spec), tool: None, origin: None, run: Arc::new(run) }
    }

    /// A copy of the tool with a changed spec.
    #[must_use]
    pub fn map_spec(mut self, change: impl FnOnce(&mut Spec)) -> Self {
        change(Arc::make_mut(&mut self.spec));
        self
    }

    /// A copy of the tool with these aliases.
    #[must_use]
    pub fn with_aliases(self, names: &[&str]) -> Self {
        self.map_spec(|spec| spec.aliases.extend(names.iter().map(|name| (*name).to_owned())))
    }

    /// A copy of the tool with the schema of its output data.
    #[must_use]
    pub fn with_output_schema<O: JsonSchema>(self) -> Self {
        self.map_spec(|spec| spec.output_schema = Some(describe_type::<O>().1))
    }

    /// A copy of the tool, restricted to a capability profile.
    #[must_use]
    pub fn confined(self, profile: CapabilityProfile) -> Self {
        self.map_spec(|spec| spec.profile = Some(profile))
    }

    /// The name of the tool that runs, independent of the dialect; `None` for a tool known only at run time.
    #[must_use]
    pub fn tool_name(&self) -> Option<&'static str> {
        self.tool
    }

    /// A copy of the tool whose output is untrusted and comes from `name`: an MCP server or a plugin.
    #[must_use]
    pub fn with_untrusted_origin(self, name: &str) -> Self {
        Self { origin: Some(name.into()), ..self }
    }

    /// The origin of the tool's output, if the output is untrusted.
    #[must_use]
    pub fn untrusted_origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Runs the tool without the gate. Only the engine calls this.
    pub fn run(&self, args: Value, call: Call) -> BoxFuture<'static, Result<Reply>> {
        (self.run)(args, call)
    }
}

/// What the tool of a row would access with these arguments.
fn requested<A, T>(args: &Value) -> Option<AccessRequest>
where
    A: DeserializeOwned,
    T: Tool + TryFrom<A>,
{
    T::try_from(A::deserialize(args).ok()?).ok()?.access()
}

/// The doc comment and the schema of a type, without references: not every provider resolves them.
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
    // Providers refuse an object schema without `properties`, even if there are none.
    if let Value::Object(map) = &mut schema
        && map.get("type").is_some_and(|it| it == "object")
    {
        map.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    (description, schema)
}

/// Removes details that only Rust uses: `format: uint`, `null` in an optional's type, null defaults.
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
            // Variants with doc comments become constants; the model needs only their names.
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
                // These keys are parameter names, not schema keywords.
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
