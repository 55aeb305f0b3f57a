//! Test support: a call without ports.

use std::sync::Arc;

use helve_contract::{Call, PathRules, PathStyle, Ports, Root, Session, Workspace, ports::NoHost};

pub(crate) fn call() -> Call {
    let workspace = Workspace::new([Root::writable("/w")], PathRules::default(), PathStyle::Relative);
    let ports = Ports::new(Arc::new(NoHost));
    Call::new("call-1", Arc::new(Session::new("session-1", workspace, ports)))
}
