//! What the agents of a run are told.

use helve_tools::artifacts::{AgentType, DagNode};

/// Who an agent is.
pub(super) fn system_prompt(kind: AgentType) -> String {
    let part = match kind {
        AgentType::Throwaway => "You do one task of a larger plan and are gone then.",
        AgentType::Worker => "You do one task of a larger plan. Small parts of it you may give to agents of type 1.",
        AgentType::SubExecutor => {
            "You lead one large task of a plan. Break it down with add_subtask, and give parts to agents of type 1 or 2."
        }
        AgentType::Refinery => {
            "You merge the branches of finished tasks, make the result work, and judge whether the plan still holds."
        }
    };
    format!(
        "{part}\nYou work alone in a git work tree on a branch of your own; nobody can be asked. Commit your work with git. \
         When you are done, or cannot go on, call emit_walkthrough exactly once and then stop."
    )
}

/// What a task's agent is to do.
pub(super) fn task_prompt(node: &DagNode, document: &str, branch: &str, before: &[String]) -> String {
    let before = if before.is_empty() {
        String::new()
    } else {
        format!("\n\nAn earlier attempt failed:\n{}", before.join("\n"))
    };
    format!("Your task is {}. You are on the branch {branch}.{before}\n\n{document}", node.id)
}

/// What a refinery is to do.
pub(super) fn refinery_prompt(node: &DagNode, document: &str, branch: &str, sources: &[String]) -> String {
    format!(
        "Your task is {}: merge these branches into {branch}, which is checked out:\n{}\n\nCall merge_branches with all of \
         them. Where it stops at a conflict, call fix_conflict with the files, and merge the rest. Then call run_tests; mend \
         what is broken, and commit. If the plan itself is wrong, call emit_cr.\n\n{document}",
        node.id,
        sources.iter().map(|it| format!("- {it}")).collect::<Vec<_>>().join("\n")
    )
}

/// What the captain is asked when a change is requested.
pub(super) fn replan_prompt(request: &str, dag: &str) -> String {
    format!(
        "A run is under way, and one of its agents asks for a change of the plan. You may only add to it.\n\nThe request:\n{request}\n\n\
         The graph now:\n{dag}\n\nAnswer with one JSON object and nothing else. Either {{\"reject\": \"why\"}}, or \
         {{\"addedNodes\": [{{\"id\", \"type\": \"task\"|\"refinery\", \"agentType\": 1|2|3|\"refinery\", \"dependencies\": [ids]}}], \
         \"addedEdges\": [{{\"from\": id, \"to\": id}}], \"tasks\": {{id: \"the whole task document with its YAML front matter\"}}}}."
    )
}

/// What the agent of a follow-up is to do.
pub(super) fn followup_prompt(task: &str, text: &str, branch: &str) -> String {
    format!(
        "A follow-up of {task}: its agent found something broken that was not part of its task. You are on the branch \
         {branch}, which begins with its work. Mend this and nothing else:\n\n{text}"
    )
}

/// Who an agent is that another agent of a run started.
pub(super) fn helper_prompt() -> &'static str {
    "You do one part of a task for another agent, in its work tree. Do all of it and nothing more; do not switch branches. \
     Your last message is your report: what you did, and the files it is about."
}
