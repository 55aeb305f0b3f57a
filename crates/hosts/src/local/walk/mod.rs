//! Finding files by name.
use std::time::Duration;

use helve_contract::{Error, Result, SafePath, ports::{Find, Found}};

use super::beneath::Beneath;

pub(super) fn find(_: &Beneath, _: &SafePath, _: &Find, _: Duration) -> Result<Found> {
    Err(Error::failed("not found"))
}
