//! A fake task manager.
