//! Commands of ours, where the shell's own are missing or weak.

use bashkit::BashBuilder;

/// Adds all of them.
pub(super) fn install(builder: BashBuilder) -> BashBuilder {
    builder
}
