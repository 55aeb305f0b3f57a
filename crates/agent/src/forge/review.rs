//! Evaluates a walkthrough: risks, low confidence and follow-ups.

use helve_contract::events::{ConflictPotential, Event, ReviewLowConfidence, TaskFollowup, TaskRisk};
use helve_tools::artifacts::Walkthrough;

/// Below this, somebody should look.
const MIN_CONFIDENCE: f64 = 0.6;

/// The events that follow from a walkthrough. `others` are the files that other running tasks have said they touch.
pub(super) fn walkthrough_events(task: &str, told: &Walkthrough, others: &[(String, Vec<String>)]) -> Vec<Event> {
    let mut events = Vec::new();
    for risk in &told.risks {
        events.push(TaskRisk { task_id: task.to_owned(), risk: risk.clone() }.into());
        for (other, files) in others {
            if let Some(file) = files.iter().find(|file| risk.contains(file.as_str())) {
                let conflict = ConflictPotential {
                    task_id: task.to_owned(),
                    other_task_id: other.clone(),
                    file: file.clone(),
                    risk: risk.clone(),
                };
                events.push(conflict.into());
            }
        }
    }
    if told.confidence < MIN_CONFIDENCE {
        events.push(ReviewLowConfidence { task_id: task.to_owned(), confidence: told.confidence }.into());
    }
    for text in &told.followups {
        let followup = TaskFollowup { task_id: task.to_owned(), followup: text.clone(), urgent: is_urgent(text) };
        events.push(followup.into());
    }
    events
}

/// Whether a follow-up speaks of something broken.
pub(super) fn is_urgent(text: &str) -> bool {
    let text = text.to_lowercase();
    text.split(|it: char| !it.is_alphanumeric()).any(|word| matches!(word, "bug" | "fix" | "broken" | "regression"))
}

#[cfg(test)]
mod tests {
    use helve_tools::artifacts::Walkthrough;
    use serde_json::json;

    use super::{is_urgent, walkthrough_events};

    #[test]
    fn a_risk_that_names_a_file_of_another_task_is_a_possible_conflict() {
        let told: Walkthrough = serde_json::from_value(json!({
            "task_id": "a", "branch": "forge/a/1", "base_ref": "main", "status": "completed", "confidence": 0.9,
            "time_spent_minutes": 1, "files_changed": [], "risks": ["src/lib.rs may not build"],
        }))
        .unwrap();
        let others = [("b".to_owned(), vec!["src/lib.rs".to_owned()]), ("c".to_owned(), vec!["README".to_owned()])];
        assert_eq!(
            json!(walkthrough_events("a", &told, &others)),
            json!([
                { "type": "task.risk", "data": { "taskId": "a", "risk": "src/lib.rs may not build" } },
                {
                    "type": "conflict.potential",
                    "data": { "taskId": "a", "otherTaskId": "b", "file": "src/lib.rs", "risk": "src/lib.rs may not build" }
                },
            ])
        );
    }

    #[test]
    fn a_word_counts_and_not_a_piece_of_one() {
        assert_eq!(["Fix the parser", "prefix names", "a regression!"].map(is_urgent), [true, false, true]);
    }
}
