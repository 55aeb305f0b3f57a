//! Several changes, all or none.

use helve_contract::{Error, Result, ports::Change};

use super::beneath::Beneath;

pub(super) fn change(_beneath: &Beneath, _changes: &[Change]) -> Result<()> {
    Err(Error::failed("several changes at once are not done here"))
}
