//! The contract of `Artifacts` for every implementation, and kills and links with artifacts in files.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use helve_contract::{
    Error, Result, async_trait,
    jiff::Timestamp,
    ports::{
        Artifact, ArtifactVersion, Artifacts, ExpectedVersion, Lease, RUN_LEASE, RunArtifacts, check_artifact_path,
        check_artifact_write, check_run_name,
    },
};
use helve_store::FileArtifacts;
use proptest::{prelude::*, strategy::ValueTree as _};

/// A place for artifacts that goes away with this.
trait ArtifactMaker: Default + Send + Sync + 'static {
    /// Another handle, as another process has one.
    fn artifacts(&self) -> Arc<dyn Artifacts>;
    /// The claims of a handle end without a release: its process is gone, or its leases ran out.
    fn lose(&self, handle: Arc<dyn Artifacts>);
}

macro_rules! artifact_suite {
    ($maker:ty: $($case:ident)*) => { $(
        #[tokio::test]
        async fn $case() {
            super::$case::<$maker>().await;
        }
    )* };
    ($module:ident, $maker:ty) => {
        mod $module {
            artifact_suite!($maker:
                any_body_comes_back writes_compare_versions one_owner_at_a_time a_stale_lease_writes_nothing
                whoever_has_no_lease_names_a_version of_many_writers_one_wins no_update_is_lost
                paths_are_listed_by_folder names_stay_in_their_run);
        }
    };
}

artifact_suite!(files, super::Folder);
artifact_suite!(memory, super::InMemory);

async fn claimed<M: ArtifactMaker>(place: &M) -> (Arc<dyn Artifacts>, Lease) {
    let artifacts = place.artifacts();
    let lease = artifacts.claim_run("r", "owner", RUN_LEASE).await.unwrap();
    (artifacts, lease)
}

async fn any_body_comes_back<M: ArtifactMaker>() {
    let place = M::default();
    let (artifacts, lease) = claimed(&place).await;
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(32));
    let bodies = prop::collection::vec(any::<u8>(), 0..2000);
    for n in 0..32 {
        let (body, path) = (bodies.new_tree(&mut runner).unwrap().current(), format!("folder-{}/{n}", n % 3));
        let version = artifacts.write(Some(&lease), "r", &path, &body, &ExpectedVersion::Any).await.unwrap();
        assert_eq!(place.artifacts().read("r", &path).await.unwrap(), Some(Artifact { body, version }));
    }
    assert_eq!(artifacts.read("r", "none").await.unwrap(), None);
    assert_eq!(artifacts.read("other", "folder-0/0").await.unwrap(), None);
}

async fn writes_compare_versions<M: ArtifactMaker>() {
    let place = M::default();
    let (artifacts, lease) = claimed(&place).await;
    let write =
        async |body: &[u8], expected: ExpectedVersion| artifacts.write(Some(&lease), "r", "a", body, &expected).await;
    let first = write(b"1", ExpectedVersion::Absent).await.unwrap();
    let told = write(b"2", ExpectedVersion::Absent).await.unwrap_err();
    assert!(matches!(told, Error::VersionConflict(_)) && told.to_string().contains("read it again"), "{told}");
    let second = write(b"2", ExpectedVersion::Is(first.clone())).await.unwrap();
    assert_ne!(first, second);
    assert!(matches!(write(b"3", ExpectedVersion::Is(first)).await, Err(Error::VersionConflict(_))));
    assert_eq!(artifacts.read("r", "a").await.unwrap(), Some(Artifact { body: b"2".to_vec(), version: second }));
    write(b"4", ExpectedVersion::Any).await.unwrap();
    let gone = ExpectedVersion::Is(ArtifactVersion::new("0"));
    assert!(matches!(artifacts.write(Some(&lease), "r", "b", b"", &gone).await, Err(Error::VersionConflict(_))));
    assert_eq!(artifacts.list("r", "").await.unwrap(), ["a"]);
}

async fn one_owner_at_a_time<M: ArtifactMaker>() {
    let place = M::default();
    let (artifacts, lease) = claimed(&place).await;
    let told = place.artifacts().claim_run("r", "other", RUN_LEASE).await.unwrap_err();
    assert!(matches!(told, Error::RunHeld(_)) && told.to_string().starts_with("run r is in use by process"), "{told}");
    // Also through the same handle; another run is free.
    assert!(matches!(artifacts.claim_run("r", "other", RUN_LEASE).await, Err(Error::RunHeld(_))));
    artifacts.claim_run("s", "other", RUN_LEASE).await.unwrap();
    // The refused claims cost the owner nothing.
    let lease = artifacts.hold_run(&lease, RUN_LEASE).await.unwrap();
    artifacts.write(Some(&lease), "r", "a", b"1", &ExpectedVersion::Any).await.unwrap();
    // The same owner gets a new claim, and its old one is stale.
    let again = artifacts.claim_run("r", "owner", RUN_LEASE).await.unwrap();
    assert!(again.epoch > lease.epoch);
    assert!(matches!(artifacts.hold_run(&lease, RUN_LEASE).await, Err(Error::LeaseLost(_))));
    artifacts.release_run(&again).await.unwrap();
    let next = place.artifacts().claim_run("r", "other", RUN_LEASE).await.unwrap();
    assert!(next.epoch > again.epoch);
}

async fn a_stale_lease_writes_nothing<M: ArtifactMaker>() {
    let place = M::default();
    let mut stale: Vec<Lease> = Vec::new();
    for round in 0..20 {
        let artifacts = place.artifacts();
        let lease = artifacts.claim_run("r", &format!("owner-{round}"), RUN_LEASE).await.unwrap();
        let body = format!("{round}").into_bytes();
        artifacts.write(Some(&lease), "r", "a", &body, &ExpectedVersion::Any).await.unwrap();
        for old in &stale {
            assert!(old.epoch < lease.epoch);
            let written = artifacts.write(Some(old), "r", "a", b"too late", &ExpectedVersion::Any).await;
            assert!(matches!(written, Err(Error::LeaseLost(_))));
            let new = artifacts.write(Some(old), "r", "b", b"too late", &ExpectedVersion::Absent).await;
            assert!(matches!(new, Err(Error::LeaseLost(_))));
            assert!(matches!(artifacts.hold_run(old, RUN_LEASE).await, Err(Error::LeaseLost(_))));
            assert!(matches!(artifacts.release_run(old).await, Err(Error::LeaseLost(_))));
        }
        // A lease of another run is none of this one.
        let other = Lease { key: "s".to_owned(), ..lease.clone() };
        let written = artifacts.write(Some(&other), "r", "a", b"wrong", &ExpectedVersion::Any).await;
        assert!(matches!(written, Err(Error::LeaseLost(_))));
        assert_eq!(artifacts.read("r", "a").await.unwrap().unwrap().body, body);
        assert_eq!(artifacts.list("r", "").await.unwrap(), ["a"]);
        stale.push(lease);
        place.lose(artifacts);
    }
}

async fn whoever_has_no_lease_names_a_version<M: ArtifactMaker>() {
    let place = M::default();
    let (artifacts, lease) = claimed(&place).await;
    let version = artifacts.write(Some(&lease), "r", "a", b"asked", &ExpectedVersion::Any).await.unwrap();
    let outside = place.artifacts();
    assert!(outside.write(None, "r", "a", b"blind", &ExpectedVersion::Any).await.is_err());
    outside.write(None, "r", "a", b"decided", &ExpectedVersion::Is(version.clone())).await.unwrap();
    // The holder, who has not seen that, does not overwrite it.
    let written = artifacts.write(Some(&lease), "r", "a", b"own", &ExpectedVersion::Is(version)).await;
    assert!(matches!(written, Err(Error::VersionConflict(_))));
    assert_eq!(artifacts.read("r", "a").await.unwrap().unwrap().body, b"decided");
}

async fn of_many_writers_one_wins<M: ArtifactMaker>() {
    let place = M::default();
    for round in 0..10 {
        let path = format!("cr-{round}");
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..16_u8 {
            let (artifacts, path) = (place.artifacts(), path.clone());
            tasks.spawn(async move { (n, artifacts.write(None, "r", &path, &[n], &ExpectedVersion::Absent).await) });
        }
        let mut won = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            match ended.unwrap() {
                (n, Ok(version)) => won.push((n, version)),
                (_, Err(Error::VersionConflict(_))) => {}
                (_, Err(error)) => panic!("{error}"),
            }
        }
        let [(n, version)] = &won[..] else { panic!("{} writers won", won.len()) };
        let kept = place.artifacts().read("r", &path).await.unwrap();
        assert_eq!(kept, Some(Artifact { body: vec![*n], version: version.clone() }));
    }
}

async fn no_update_is_lost<M: ArtifactMaker>() {
    let place = M::default();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8 {
        let run = RunArtifacts::new(place.artifacts(), "r");
        tasks.spawn(async move {
            for round in 0..10 {
                loop {
                    let (mut body, expected) = match run.read("log").await.unwrap() {
                        Some(found) => (found.body, ExpectedVersion::Is(found.version)),
                        None => (Vec::new(), ExpectedVersion::Absent),
                    };
                    body.extend(format!("{n}.{round}\n").into_bytes());
                    match run.write("log", &body, &expected).await {
                        Ok(_) => break,
                        Err(Error::VersionConflict(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let log = place.artifacts().read("r", "log").await.unwrap().unwrap().body;
    let log = String::from_utf8(log).unwrap();
    let lines: BTreeSet<&str> = log.lines().collect();
    assert_eq!((lines.len(), log.lines().count()), (80, 80));
}

async fn paths_are_listed_by_folder<M: ArtifactMaker>() {
    let place = M::default();
    let (artifacts, lease) = claimed(&place).await;
    assert_eq!(artifacts.list("r", "").await.unwrap(), Vec::<String>::new());
    for path in ["b/2.md", "a.md", "b/1.md", "b/c/3.md", "bc/4.md"] {
        artifacts.write(Some(&lease), "r", path, b"", &ExpectedVersion::Any).await.unwrap();
    }
    let artifacts = place.artifacts();
    assert_eq!(artifacts.list("r", "").await.unwrap(), ["a.md", "b/1.md", "b/2.md", "b/c/3.md", "bc/4.md"]);
    assert_eq!(artifacts.list("r", "b").await.unwrap(), ["b/1.md", "b/2.md", "b/c/3.md"]);
    for folder in ["none", "a.md", "b/1.md"] {
        assert_eq!(artifacts.list("r", folder).await.unwrap(), Vec::<String>::new(), "{folder}");
    }
    assert_eq!(artifacts.runs().await.unwrap(), ["r"]);
}

async fn names_stay_in_their_run<M: ArtifactMaker>() {
    let place = M::default();
    let artifacts = place.artifacts();
    for (run, path) in
        [("r", "../s/a"), ("..", "a"), ("r", "/a"), ("r", "a/../../a"), ("r/s", "a"), ("r", ".x"), ("r", "")]
    {
        assert!(artifacts.write(None, run, path, b"x", &ExpectedVersion::Absent).await.is_err(), "{run} {path}");
        assert!(artifacts.read(run, path).await.is_err(), "{run} {path}");
    }
    for run in ["", "..", "a/b", "a\0"] {
        assert!(artifacts.claim_run(run, "owner", RUN_LEASE).await.is_err(), "{run}");
        assert!(artifacts.list(run, "").await.is_err(), "{run}");
    }
    assert!(artifacts.list("r", "..").await.is_err());
    assert_eq!(artifacts.runs().await.unwrap(), Vec::<String>::new());
}

/// Artifacts in a directory.
struct Folder(tempfile::TempDir);

impl Default for Folder {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Folder {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl ArtifactMaker for Folder {
    fn artifacts(&self) -> Arc<dyn Artifacts> {
        Arc::new(FileArtifacts::at(self.path()))
    }

    fn lose(&self, handle: Arc<dyn Artifacts>) {
        // The kernel gives its locks back, as at the end of a process.
        drop(handle);
    }
}

/// Artifacts as rows with numbered versions, in the way of a table.
#[derive(Default)]
struct InMemory(Arc<Mutex<Tables>>);

#[derive(Default)]
struct Tables {
    rows: BTreeMap<(String, String), (Vec<u8>, u64)>,
    leases: HashMap<String, (String, u64)>,
    last: u64,
}

impl Tables {
    fn is_held(&self, lease: &Lease) -> bool {
        self.leases.get(&lease.key) == Some(&(lease.owner.clone(), lease.epoch))
    }
}

#[async_trait]
impl Artifacts for InMemory {
    async fn claim_run(&self, run: &str, owner: &str, _: Duration) -> Result<Lease> {
        check_run_name(run)?;
        let mut tables = self.0.lock().unwrap();
        let (holder, epoch) = tables.leases.get(run).cloned().unwrap_or_default();
        if !holder.is_empty() && holder != owner {
            return Err(Error::RunHeld(format!("run {run} is in use by process 1")));
        }
        tables.leases.insert(run.to_owned(), (owner.to_owned(), epoch + 1));
        Ok(Lease { key: run.to_owned(), owner: owner.to_owned(), epoch: epoch + 1, until: Timestamp::MAX })
    }
    async fn hold_run(&self, lease: &Lease, _: Duration) -> Result<Lease> {
        let is_held = self.0.lock().unwrap().is_held(lease);
        is_held.then(|| lease.clone()).ok_or_else(|| Error::LeaseLost(lease.key.clone()))
    }
    async fn release_run(&self, lease: &Lease) -> Result<()> {
        self.hold_run(lease, RUN_LEASE).await?;
        self.0.lock().unwrap().leases.insert(lease.key.clone(), (String::new(), lease.epoch));
        Ok(())
    }
    async fn read(&self, run: &str, path: &str) -> Result<Option<Artifact>> {
        check_run_name(run)?;
        check_artifact_path(path)?;
        let tables = self.0.lock().unwrap();
        let row = tables.rows.get(&(run.to_owned(), path.to_owned())).cloned();
        Ok(row.map(|(body, version)| Artifact { body, version: ArtifactVersion::new(version.to_string()) }))
    }
    async fn write(
        &self,
        lease: Option<&Lease>,
        run: &str,
        path: &str,
        body: &[u8],
        expected: &ExpectedVersion,
    ) -> Result<ArtifactVersion> {
        check_artifact_write(lease, run, path, body, expected)?;
        let mut tables = self.0.lock().unwrap();
        if lease.is_some_and(|lease| !tables.is_held(lease)) {
            return Err(Error::LeaseLost(run.to_owned()));
        }
        let key = (run.to_owned(), path.to_owned());
        let current = tables.rows.get(&key).map(|it| ArtifactVersion::new(it.1.to_string()));
        if !expected.allows(current.as_ref()) {
            return Err(Error::VersionConflict(path.to_owned()));
        }
        tables.last += 1;
        let version = tables.last;
        tables.rows.insert(key, (body.to_vec(), version));
        Ok(ArtifactVersion::new(version.to_string()))
    }
    async fn list(&self, run: &str, folder: &str) -> Result<Vec<String>> {
        check_run_name(run)?;
        if !folder.is_empty() {
            check_artifact_path(folder)?;
        }
        let beneath = |path: &String| folder.is_empty() || path.starts_with(&format!("{folder}/"));
        let tables = self.0.lock().unwrap();
        let keys = tables.rows.keys().filter(|key| key.0 == run && beneath(&key.1));
        Ok(keys.map(|key| key.1.clone()).collect())
    }
    async fn runs(&self) -> Result<Vec<String>> {
        let runs: BTreeSet<_> = self.0.lock().unwrap().rows.keys().map(|key| key.0.clone()).collect();
        Ok(runs.into_iter().collect())
    }
}

impl ArtifactMaker for InMemory {
    fn artifacts(&self) -> Arc<dyn Artifacts> {
        Arc::new(Self(self.0.clone()))
    }

    fn lose(&self, _: Arc<dyn Artifacts>) {
        self.0.lock().unwrap().leases.values_mut().for_each(|it| it.0.clear());
    }
}

#[tokio::test]
async fn files_stay_where_people_look_for_them() {
    let place = Folder::default();
    let (artifacts, lease) = claimed(&place).await;
    artifacts.write(Some(&lease), "r", "tasks/a.md", b"# A", &ExpectedVersion::Any).await.unwrap();
    let file = place.path().join("artifacts/r/tasks/a.md");
    assert_eq!(fs::read(&file).unwrap(), b"# A");
    // A person edits it: whoever read it before does not overwrite that.
    let read = artifacts.read("r", "tasks/a.md").await.unwrap().unwrap();
    fs::write(&file, "# B").unwrap();
    let written = artifacts.write(Some(&lease), "r", "tasks/a.md", b"# C", &ExpectedVersion::Is(read.version)).await;
    assert!(matches!(written, Err(Error::VersionConflict(_))));
    // What other programs leave is not listed.
    fs::write(place.path().join("artifacts/r/.DS_Store"), "").unwrap();
    symlink("/etc/passwd", place.path().join("artifacts/r/link")).unwrap();
    assert_eq!(artifacts.list("r", "").await.unwrap(), ["tasks/a.md"]);
}

#[tokio::test]
async fn links_lead_nowhere() {
    let place = Folder::default();
    let (artifacts, lease) = claimed(&place).await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("a"), "outside").unwrap();
    fs::create_dir_all(place.path().join("artifacts/r")).unwrap();
    symlink(outside.path(), place.path().join("artifacts/r/folder")).unwrap();
    symlink(outside.path().join("a"), place.path().join("artifacts/r/file")).unwrap();
    for path in ["folder/a", "file"] {
        assert!(artifacts.read("r", path).await.is_err(), "{path}");
    }
    let written = artifacts.write(Some(&lease), "r", "folder/a", b"x", &ExpectedVersion::Any).await;
    assert!(written.unwrap_err().to_string().contains("links are not followed there"));
    // A link in place of the file itself is replaced.
    artifacts.write(Some(&lease), "r", "file", b"x", &ExpectedVersion::Any).await.unwrap();
    assert_eq!(fs::read_to_string(outside.path().join("a")).unwrap(), "outside");
    assert_eq!(artifacts.read("r", "file").await.unwrap().unwrap().body, b"x");
    // So is a whole run that is a link.
    symlink(outside.path(), place.path().join("artifacts/s")).unwrap();
    assert!(artifacts.write(None, "s", "a", b"x", &ExpectedVersion::Absent).await.is_err());
}

/// Set for the process that writes artifacts: the directory.
const ORDER: &str = "HELVE_TEST_ARTIFACTS";

fn body(n: u64) -> Vec<u8> {
    format!("{n}\n").repeat(1 + (n as usize * 977) % 20_000).into_bytes()
}

/// Not a test: this binary started again as a process that writes artifacts until it is killed.
#[tokio::test]
async fn writer() {
    let Ok(folder) = std::env::var(ORDER) else { return };
    let run = RunArtifacts::new(Arc::new(FileArtifacts::at(Path::new(&folder))), "r");
    run.claim().await.unwrap();
    let last = run.read("steps/last").await.unwrap().map_or(0, |it| number(&it.body));
    for n in last + 1.. {
        run.write("steps/last", &body(n), &ExpectedVersion::Any).await.unwrap();
        writeln!(std::io::stderr().lock(), "kept {n} {}", run.lease().unwrap().epoch).unwrap();
    }
}

/// The number that a whole body is made of.
fn number(bytes: &[u8]) -> u64 {
    let text = std::str::from_utf8(bytes).unwrap();
    let n = text.lines().next().unwrap().parse().unwrap();
    assert_eq!(bytes, body(n), "the artifact is whole");
    n
}

#[tokio::test]
async fn acknowledged_artifacts_survive_a_kill() {
    let kills = std::env::var("HELVE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let place = Folder::default();
    let (mut acknowledged, mut epochs) = (0, Vec::new());
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["artifacts::writer", "--exact", "--nocapture"])
            .env(ORDER, place.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut hear = |line: Option<std::io::Result<String>>| {
            let Some(Ok(line)) = line else { return false };
            if let ["kept", n, epoch] = line.split(' ').collect::<Vec<_>>()[..]
                && let (Ok(n), Ok(epoch)) = (n.parse::<u64>(), epoch.parse::<u64>())
            {
                acknowledged = acknowledged.max(n);
                epochs.push(epoch);
            }
            true
        };
        for _ in 0..=(kill * 7 % 11) {
            assert!(hear(lines.next()), "the writer ended by itself in round {kill}");
        }
        let moment = std::time::Instant::now() + Duration::from_micros(kill * 977 % 4000);
        while std::time::Instant::now() < moment {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        while hear(lines.next()) {}
        if let Some(kept) = place.artifacts().read("r", "steps/last").await.unwrap() {
            let kept = number(&kept.body);
            assert!(kept >= acknowledged, "{acknowledged} was acknowledged, {kept} is there after kill {kill}");
        }
    }
    assert!(acknowledged > 0 && epochs.is_sorted(), "{epochs:?}");
    // The next write removes what killed writers left.
    let (artifacts, lease) = claimed(&place).await;
    artifacts.write(Some(&lease), "r", "steps/end", b"", &ExpectedVersion::Any).await.unwrap();
    let mut names: Vec<_> =
        fs::read_dir(place.path().join("artifacts/r/steps")).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["end", "last"]);
}
