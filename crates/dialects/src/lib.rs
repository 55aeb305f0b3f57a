//! dialects.
