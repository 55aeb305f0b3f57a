//! Events of planned runs, in `runs/RUN/events.ndjson` of `.forge`.

use jiff::Timestamp;
use serde_json::Value;

use super::{ArtifactKind, ContentKind, ExhaustedStatus, PauseReason, payloads};
use crate::{AgentType, ports::MessageRole};

payloads! { ForgeRun:
    /// The captain finished the plan.
    PlanFinalized = "plan.finalized" {
        /// Tasks in the plan.
        total_tasks: u64 = "totalTasks",
        /// Refineries in the plan.
        total_refineries: u64 = "totalRefineries",
        /// Specifications in the plan.
        spec_count: u64 = "specCount",
    }

    /// The captain said something.
    CaptainMessage = "captain.message" {
        /// The text, 16 KiB at most.
        content: String = "content",
        /// Who speaks.
        role: MessageRole = "role",
    }

    /// The captain calls a tool.
    CaptainToolCall = "captain.tool_call" {
        /// The tool.
        tool_name: String = "toolName",
        /// The arguments, 16 KiB at most.
        args: Value = "args",
    }

    /// A tool call of the captain ended.
    CaptainToolResult = "captain.tool_result" {
        /// The tool.
        tool_name: String = "toolName",
        /// The reply, 16 KiB at most.
        result: String = "result",
    }

    /// The run executes for the first time.
    RunStarted = "run.started" {
        /// The repository.
        repo_url: String = "repoUrl",
        /// SHA-256 of `dag.json`, in hexadecimal digits.
        dag_hash: String = "dagHash",
    }

    /// Nothing new begins.
    RunPaused = "run.paused" {
        /// Why.
        reason: PauseReason = "reason",
        /// The change request that is open.
        cr_id: Option<String> = "crId" [skip_serializing_if = "Option::is_none"],
    }

    /// The run continues. Both fields are null where a person continues it.
    RunResumed = "run.resumed" {
        /// The change request that was decided.
        cr_id: Option<String> = "crId",
        /// What was added to the plan.
        overlay_id: Option<String> = "overlayId",
    }

    /// All tasks are merged or have used all of their attempts.
    RunCompleted = "run.completed" {
        /// Tasks that are merged.
        total_completed: u64 = "totalCompleted",
        /// Tasks that have used all of their attempts.
        total_failed: u64 = "totalFailed",
        /// Seconds since the run began.
        duration: i64 = "duration",
    }

    /// A task gets an agent.
    TaskScheduled = "task.scheduled" {
        /// The task.
        task_id: String = "taskId",
        /// The type of the agent: 1, 2, 3 or `refinery`.
        agent_type: AgentType = "agentType",
    }

    /// The agent of a task starts.
    TaskStarted = "task.started" {
        /// The task.
        task_id: String = "taskId",
        /// The agent.
        agent_id: String = "agentId",
        /// The agent's name for people: run, task and attempt.
        agent_label: Option<String> = "agentLabel" [default, skip_serializing_if = "Option::is_none"],
        /// The agent's work tree.
        sandbox_id: String = "sandboxId",
        /// The branch it works on.
        branch: String = "branch",
    }

    /// The agent of a task is alive.
    TaskHeartbeat = "task.heartbeat" {
        /// The task.
        task_id: String = "taskId",
        /// The agent.
        agent_id: String = "agentId",
        /// Seconds since it started.
        uptime_seconds: i64 = "uptimeSeconds",
    }

    /// The agent of a task said something.
    TaskProgress = "task.progress" {
        /// The task.
        task_id: String = "taskId",
        /// The text, 8 KiB at most.
        content: String = "content",
        /// What the text is.
        content_kind: ContentKind = "contentType",
    }

    /// The agent of a task has done its work.
    TaskCompleted = "task.completed" {
        /// The task.
        task_id: String = "taskId",
        /// The agent's report.
        walkthrough_path: String = "walkthroughPath",
    }

    /// An attempt at a task failed.
    TaskFailed = "task.failed" {
        /// The task.
        task_id: String = "taskId",
        /// Why.
        error: String = "error",
        /// Whether there is another attempt.
        can_retry: bool = "canRetry",
    }

    /// The agent of a task went silent.
    TaskStale = "task.stale" {
        /// The task.
        task_id: String = "taskId",
        /// When it was last heard of.
        last_heartbeat: Timestamp = "lastHeartbeat",
        /// After how many seconds of silence an agent is stopped.
        threshold: u64 = "threshold",
    }

    /// A task is tried again.
    TaskRetried = "task.retried" {
        /// The task.
        task_id: String = "taskId",
        /// The number of the next attempt.
        attempt_id: String = "attemptId",
        /// The branch of the next attempt.
        branch: String = "branch",
    }

    /// A task has used all of its attempts.
    TaskExhausted = "task.exhausted" {
        /// The task.
        task_id: String = "taskId",
        /// How many attempts there were.
        attempts: u32 = "attempts",
        /// How the last one ended.
        final_status: ExhaustedStatus = "finalStatus",
    }

    /// A walkthrough names a risk.
    TaskRisk = "task.risk" {
        /// The task.
        task_id: String = "taskId",
        /// The risk.
        risk: String = "risk",
    }

    /// A walkthrough names something to do next.
    TaskFollowup = "task.followup" {
        /// The task.
        task_id: String = "taskId",
        /// What to do.
        followup: String = "followup",
        /// Whether it speaks of something broken.
        urgent: bool = "urgent",
    }

    /// A risk names a file that another running task has changed.
    ConflictPotential = "conflict.potential" {
        /// The task with the risk.
        task_id: String = "taskId",
        /// The task that changed the file.
        other_task_id: String = "otherTaskId",
        /// The file.
        file: String = "file",
        /// The risk.
        risk: String = "risk",
    }

    /// A walkthrough has a confidence below 0.6.
    ReviewLowConfidence = "review.low_confidence" {
        /// The task.
        task_id: String = "taskId",
        /// The confidence, from 0 to 1.
        confidence: f64 = "confidence",
    }

    /// An agent takes up an urgent follow-up.
    FollowupSpawned = "followup.spawned" {
        /// The task whose walkthrough named it.
        task_id: String = "taskId",
        /// The follow-up.
        followup_id: String = "followupId",
        /// What to do.
        followup: String = "followup",
        /// The agent.
        agent_id: String = "agentId",
        /// The agent's name for people: run, task and attempt.
        agent_label: Option<String> = "agentLabel" [default, skip_serializing_if = "Option::is_none"],
        /// The type of the agent.
        agent_type: AgentType = "agentType",
        /// The branch it works on.
        branch: String = "branch",
    }

    /// The agent of a follow-up ended.
    FollowupEnded = "followup.ended" {
        /// The task whose walkthrough named it.
        task_id: String = "taskId",
        /// The follow-up.
        followup_id: String = "followupId",
        /// The branch it worked on.
        branch: String = "branch",
        /// Why it failed, if it did.
        error: Option<String> = "error",
    }

    /// An artifact was written.
    ArtifactWritten = "artifact.written" {
        /// The file.
        path: String = "path",
        /// What it is.
        kind: ArtifactKind = "type",
    }

    /// The repository has the branch of a task.
    BranchPushed = "branch.pushed" {
        /// The task.
        task_id: String = "taskId",
        /// The branch.
        branch: String = "branch",
        /// Its last commit.
        commit: String = "ref",
    }

    /// A refinery starts.
    RefineryStarted = "refinery.started" {
        /// The refinery.
        task_id: String = "taskId",
        /// How many branches it merges.
        dependency_count: u64 = "dependencyCount",
    }

    /// The work of a refinery is merged.
    RefineryMerged = "refinery.merged" {
        /// The refinery.
        task_id: String = "taskId",
        /// The branches it merged.
        merged_branches: Vec<String> = "mergedBranches",
        /// The files that did not fit together.
        conflicts: Vec<String> = "conflicts",
    }

    /// A refinery asked for a change of the plan.
    CrEmitted = "cr.emitted" {
        /// The change request.
        cr_id: String = "crId",
        /// Its title.
        title: String = "title",
        /// The agent that asked.
        emitted_by: String = "emittedBy",
    }

    /// A change request was rejected.
    CrRejected = "cr.rejected" {
        /// The change request.
        cr_id: String = "crId",
        /// Why.
        reason: String = "reason",
    }

    /// The captain could not decide about a change request.
    CrUndecided = "cr.undecided" {
        /// The change request.
        cr_id: String = "crId",
        /// Why.
        error: String = "error",
    }
}
