//! Events of the record: tool calls, and what the engine, the sandbox and MCP clients report.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{IntegrityResult, MountAccess, payloads};
use crate::CapabilityProfile;

payloads! { Record:
    /// A tool call begins. Exactly one `tool.result` follows.
    ToolCall = "tool.call" {
        /// The agent that calls.
        agent_id: String = "agentId",
        /// The id of the call: a UUID.
        call_id: String = "callId",
        /// The id that the model or client gave the call. Others may have the same one.
        tool_call_id: String = "toolCallId" [default, skip_serializing_if = "String::is_empty"],
        /// The tool.
        tool: String = "tool",
        /// The tool, by its other name in JSON.
        tool_name: String = "toolName",
        /// The task of a planned run.
        task_id: Option<String> = "taskId" [skip_serializing_if = "Option::is_none"],
        /// The capability profile of the tool.
        profile: Option<CapabilityProfile> = "profile" [skip_serializing_if = "Option::is_none"],
        /// The arguments without secrets, 16 KiB at most.
        args: Value = "args",
        /// The arguments, by their other name in JSON.
        params: Value = "params",
        /// What was repaired in the arguments.
        notes: Vec<String> = "notes" [default, skip_serializing_if = "Vec::is_empty"],
    }

    /// A tool call ended, however it ended.
    ToolResult = "tool.result" {
        /// The agent that called.
        agent_id: String = "agentId",
        /// The id of the call: a UUID.
        call_id: String = "callId",
        /// The id that the model or client gave the call. Others may have the same one.
        tool_call_id: String = "toolCallId" [default, skip_serializing_if = "String::is_empty"],
        /// The tool.
        tool: String = "tool",
        /// The tool, by its other name in JSON.
        tool_name: String = "toolName",
        /// The task of a planned run.
        task_id: Option<String> = "taskId" [skip_serializing_if = "Option::is_none"],
        /// Whether a rule, the mode or a person refused the call.
        denied: bool = "denied" [default, skip_serializing_if = "std::ops::Not::not"],
        /// What the call returned without secrets, 16 KiB at most.
        result: Value = "result",
        /// Whether the call failed.
        is_error: bool = "isError",
        /// How long it took, in milliseconds.
        duration_ms: f64 = "durationMs",
        /// The exit code of a command.
        exit: Option<i32> = "exit",
        /// The sandbox that a command ran in.
        wall: Option<String> = "wall",
        /// What the model was told besides.
        notes: Vec<String> = "notes",
        /// The file with the whole output, where the reply has a part of it.
        spill: Option<String> = "spill",
    }

    /// The engine refused a call, because its arguments would carry a registered secret out of the machine.
    SecretLeak = "secret.leak" {
        /// The tool.
        tool: String = "tool",
        /// The id of the call.
        call_id: String = "callId",
        /// The agent that called.
        agent_id: String = "agentId",
        /// The kind of secret.
        what: String = "what",
        /// The origins of untrusted content in the session.
        after: Vec<String> = "after",
    }

    /// Untrusted content of a new origin came into the session.
    Taint = "taint" {
        /// The id of the call that brought it.
        call_id: String = "callId",
        /// The agent that called.
        agent_id: String = "agentId",
        /// The origin: an address, a file, a tool.
        origin: String = "origin",
    }

    /// An MCP client named its roots, and the workspace was narrowed to them.
    McpRoots = "mcp.roots" {
        /// The session.
        session: String = "session",
        /// The directories of the workspace from now on.
        roots: Vec<String> = "roots",
        /// The roots that were ignored, with reasons.
        ignored: Vec<String> = "ignored",
    }

    /// A command made or changed a protected file.
    SandboxIntegrity = "sandbox.integrity" {
        /// The file.
        path: String = "path",
        /// What was done about it.
        outcome: IntegrityResult = "outcome",
        /// Where it was moved.
        to: Option<String> = "to" [skip_serializing_if = "Option::is_none"],
        /// The git object that has its content.
        object: Option<String> = "object" [skip_serializing_if = "Option::is_none"],
    }

    /// A WebAssembly tool starts.
    WasmCall = "wasm.call" {
        /// The id of the request.
        request_id: String = "request_id",
        /// The operation of the module.
        operation: String = "operation",
        /// The tool.
        tool_name: String = "tool_name",
        /// The capability profile.
        profile: CapabilityProfile = "profile",
        /// The directories that the module sees.
        mounts: Vec<MountInfo> = "mounts",
    }

    /// The disk takes events again that it did not take for a while.
    EventsRecovered = "events.recovered" {
        /// How many events waited in memory. They stand before this one, with `heldSince` in their data.
        held: u64 = "held",
        /// How many were lost, because there was no room for more.
        lost: u64 = "lost",
    }
}

/// A directory that a WebAssembly module sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountInfo {
    /// The path inside the module.
    pub path: String,
    /// What the module may do there.
    pub access: MountAccess,
}
