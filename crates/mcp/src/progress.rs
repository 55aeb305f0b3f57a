//! What a call says while it runs, as progress notifications.

use std::sync::{Arc, Mutex, PoisonError};

use helve_contract::ProgressFn;
use serde_json::{json, value::RawValue};

use crate::{answer, peer::Outbox};

/// What one notification carries at most; the rest of a long piece of output is for the result.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// The progress of one call: steps counted from 1, until the call has been answered.
pub(crate) struct ProgressReporter {
    token: Box<RawValue>,
    out: Arc<dyn Outbox>,
    /// Steps so far; `None` once the call is over, for nothing may follow its answer.
    count: Mutex<Option<u64>>,
}

impl ProgressReporter {
    /// Progress under a client's token.
    pub(crate) fn new(token: &RawValue, out: Arc<dyn Outbox>) -> Arc<Self> {
        Arc::new(Self { token: token.to_owned(), out, count: Mutex::new(Some(0)) })
    }

    /// Where a call speaks to.
    pub(crate) fn listener(self: &Arc<Self>) -> ProgressFn {
        let steps = self.clone();
        Arc::new(move |text: &str| steps.notify(text))
    }

    /// The call is over.
    pub(crate) fn close(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn notify(&self, text: &str) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(steps) = &mut *count else { return };
        *steps += 1;
        let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
        let params = json!({ "progressToken": self.token, "progress": steps, "message": text });
        self.out.send(answer::notification("notifications/progress", &params));
    }
}
