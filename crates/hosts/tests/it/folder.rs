//! A directory of a test's own, and paths in it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use helve_contract::{
    Access, Error, FileErrorKind, PathGlob, PathRule, PathRules, PathStyle, Root, SafePath, Workspace,
};

/// A fresh directory with a workspace `root` in it and an `outside` beside it; removed at the end.
pub(crate) struct Folder {
    top: PathBuf,
    rules: PathRules,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self::beneath(&std::env::temp_dir())
    }

    /// One in memory, where there is such a disk: for tests that write so often that a real one would slow them.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let usable = rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok();
        Self::beneath(if usable { memory } else { Path::new("/tmp") })
    }

    fn beneath(dir: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("helve-hosts-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let top = fs::canonicalize(dir).unwrap().join(name);
        fs::create_dir_all(top.join("root")).unwrap();
        fs::create_dir_all(top.join("outside")).unwrap();
        fs::write(top.join("outside/secret"), "top secret\n").unwrap();
        Self { top, rules: PathRules::default() }
    }

    /// The same, with something forbidden in it.
    pub(crate) fn with_rule(pattern: &str, denies: Access) -> Self {
        let rule = PathRule::new(PathGlob::new(pattern), denies, "is protected");
        let mut folder = Self::new();
        folder.rules = PathRules::new([rule]);
        folder
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.top.join("root")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.top.join("outside")
    }

    pub(crate) fn workspace(&self) -> Workspace {
        Workspace::new([Root::writable(self.root())], self.rules.clone(), PathStyle::Relative)
    }

    pub(crate) fn path(&self, path: &str) -> SafePath {
        self.workspace().check(Path::new(path), Access::Read, None).unwrap()
    }

    pub(crate) fn to_write(&self, path: &str) -> SafePath {
        self.workspace().check(Path::new(path), Access::Write, None).unwrap()
    }

    /// Puts a file on disk, with the directories above it.
    pub(crate) fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.root().join(path)).unwrap();
    }

    /// What is in a file, as text.
    pub(crate) fn text(&self, path: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.root().join(path)).unwrap()).into_owned()
    }

    /// The names in a directory of the root, sorted.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.root().join(path))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.top);
    }
}

/// The error of an answer that must be one.
pub(crate) fn fault<T: std::fmt::Debug>(result: Result<T, Error>) -> FileErrorKind {
    match result {
        Err(Error::File { fault, .. }) => fault,
        other => panic!("no fault, but {other:?}"),
    }
}

/// The answer of a call that waits for nothing: without a runtime the local host does all at once.
pub(crate) fn now<T>(call: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(call).poll(&mut context) {
        std::task::Poll::Ready(answer) => answer,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())]
    }

    /// True so many times in a hundred.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.roll(100) < percent
    }
}
