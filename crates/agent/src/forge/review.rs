//! What a walkthrough tells the executor: risks, doubts, things to do next.

use helve_tools::artifacts::Walkthrough;
use serde_json::{Value, json};

/// Below this, somebody should look.
const SURE: f64 = 0.6;

/// The events that follow from a walkthrough. `others` are the files that other running tasks have said they touch.
pub(super) fn remarks(task: &str, told: &Walkthrough, others: &[(String, Vec<String>)]) -> Vec<(&'static str, Value)> {
    let mut events = Vec::new();
    for risk in &told.risks {
        events.push(("task.risk", json!({ "taskId": task, "risk": risk })));
        for (other, files) in others {
            if let Some(file) = files.iter().find(|file| risk.contains(file.as_str())) {
                let data = json!({ "taskId": task, "otherTaskId": other, "file": file, "risk": risk });
                events.push(("conflict.potential", data));
            }
        }
    }
    if told.confidence < SURE {
        events.push(("review.low_confidence", json!({ "taskId": task, "confidence": told.confidence })));
    }
    for text in &told.followups {
        let urgent = is_urgent(text);
        events.push(("task.followup", json!({ "taskId": task, "followup": text, "urgent": urgent })));
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

    use super::{is_urgent, remarks};

    #[test]
    fn a_risk_that_names_a_file_of_another_task_is_a_possible_conflict() {
        let told: Walkthrough = serde_json::from_value(json!({
            "task_id": "a", "branch": "forge/a/1", "base_ref": "main", "status": "completed", "confidence": 0.9,
            "time_spent_minutes": 1, "files_changed": [], "risks": ["src/lib.rs may not build"],
        }))
        .unwrap();
        let others = [("b".to_owned(), vec!["src/lib.rs".to_owned()]), ("c".to_owned(), vec!["README".to_owned()])];
        assert_eq!(
            remarks("a", &told, &others),
            [
                ("task.risk", json!({ "taskId": "a", "risk": "src/lib.rs may not build" })),
                (
                    "conflict.potential",
                    json!({ "taskId": "a", "otherTaskId": "b", "file": "src/lib.rs", "risk": "src/lib.rs may not build" })
                ),
            ]
        );
    }

    #[test]
    fn a_word_counts_and_not_a_piece_of_one() {
        assert_eq!(["Fix the parser", "prefix names", "a regression!"].map(is_urgent), [true, false, true]);
    }
}
