//! The environment of commands, built from an allowlist and never copied from Helve's environment.

use std::{
    env,
    path::{Path, PathBuf},
};

use helve_contract::{Error, Result};

use super::settings::SandboxConfig;

/// The system directories of `PATH`.
pub(super) const SYSTEM_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Copied from Helve's environment if set.
const INHERITED_VARS: [&str; 7] = ["LANG", "LANGUAGE", "LC_*", "TZ", "USER", "LOGNAME", "COLORTERM"];

/// Always set: no program opens a pager, prompts, or runs a filter that a variable names.
const FIXED_VARS: [(&str, &str); 11] = [
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", "cat"),
    ("LESSOPEN", ""),
    ("LESSCLOSE", ""),
    ("LESSSECURE", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GCM_INTERACTIVE", "never"),
    ("DEBIAN_FRONTEND", "noninteractive"),
];

/// Variables that the sandbox sets, so inheriting them has no effect.
const SET_HERE: [&str; 5] = ["PATH", "HOME", "TMPDIR", "SHELL", "TERM"];

/// Prefixes of variables that make a program run code, load a library or read attacker-chosen settings. Whole
/// families are refused, because each release of a program adds members. Upper case.
const DENIED_PREFIXES: &[&str] = &[
    // The loader, the C library and sanitizers.
    "LD_",
    "DYLD_",
    "GLIBC_",
    "GCONV_",
    "MALLOC_",
    "ASAN_",
    "LSAN_",
    "MSAN_",
    "TSAN_",
    "UBSAN_",
    "GCOV_",
    "LLVM_",
    // Shells, pagers, editors and other programs that a program starts.
    "BASH_",
    "LESS",
    "MAN",
    "SYSTEMD_",
    "SUDO_",
    "FZF_",
    "BAT_",
    "XDG_",
    "HELVE_",
    // Version control and transfer.
    "GIT_",
    "SVN_",
    "CVS_",
    "HG",
    "SSH_",
    "RSYNC_",
    "CURL_",
    // Languages.
    "PYTHON",
    "PERL",
    "RUBY",
    "BUNDLE_",
    "GEM_",
    "NODE_",
    "DENO_",
    "BUN_",
    "LUA_",
    "PHP",
    "R_",
    "JULIA_",
    "OCAML",
    "CAML_",
    "GHC",
    "ERL_",
    "ELIXIR_",
    "MIX_",
    "GUILE_",
    "TCL",
    "JAVA_",
    "_JAVA_",
    "JDK_",
    "JRE_",
    "MAVEN_",
    "MVN_",
    "GRADLE_",
    "ANT_",
    "SBT_",
    "SCALA_",
    "KOTLIN_",
    "GROOVY_",
    "LEIN_",
    "CATALINA_",
    "DOTNET_",
    "COMPLUS_",
    "CORECLR_",
    "COR_",
    "MONO_",
    "NUGET_",
    "MSBUILD",
    // Compilers and build tools.
    "RUSTC",
    "RUSTDOC",
    "RUSTUP_",
    "CARGO_",
    "CGO_",
    "GCC_",
    "CCACHE_",
    "SCCACHE_",
    "DISTCC_",
    "CMAKE_",
    "MAKE",
    "PKG_CONFIG",
    // Package managers and test runners.
    "NPM_CONFIG_",
    "YARN_",
    "PNPM_",
    "COREPACK_",
    "PIP_",
    "PIPX_",
    "PIPENV_",
    "UV_",
    "POETRY_",
    "CONDA_",
    "PYTEST_",
    "COVERAGE_",
    "JUPYTER_",
    // Libraries with modules, engines or plugins.
    "OPENSSL_",
    "SSL_",
    "KRB5_",
    "QT_",
    "GTK_",
    "GIO_",
    "GST_",
    "VK_",
    "LIBGL_",
    "OCL_ICD_",
    // Programs that administer other machines.
    "DOCKER_",
    "ANSIBLE_",
    "HELM_",
    "VAGRANT_",
    "TF_CLI_",
];

/// Single names of the same kind. Upper case.
const DENIED_VARS: &[&str] = &[
    // Shells.
    "ENV",
    "BASHOPTS",
    "SHELLOPTS",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "IFS",
    "PATH",
    "FPATH",
    "CDPATH",
    "GLOBIGNORE",
    "EXECIGNORE",
    "ZDOTDIR",
    "INPUTRC",
    "HOME",
    "SHELL",
    "TMPDIR",
    // Programs that a program starts, and their settings.
    "PAGER",
    "EDITOR",
    "VISUAL",
    "FCEDIT",
    "BROWSER",
    "VIMINIT",
    "EXINIT",
    "VIMRUNTIME",
    "SCREENRC",
    "RIPGREP_CONFIG_PATH",
    "WGETRC",
    "SYSTEM_WGETRC",
    "TAR_OPTIONS",
    "PSQLRC",
    "PSQL_PAGER",
    "PSQL_EDITOR",
    "PGSERVICEFILE",
    "PGSYSCONFDIR",
    "KUBECONFIG",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "TERRAFORM_CONFIG",
    // Languages.
    "CLASSPATH",
    "JYTHONPATH",
    "MYPYPATH",
    "IPYTHONDIR",
    "AWKPATH",
    "AWKLIBPATH",
    "GOFLAGS",
    "GOENV",
    "GOROOT",
    "GOPATH",
    "GOBIN",
    "GOTOOLCHAIN",
    "GOTOOLDIR",
    "GOPROXY",
    "GOSUMDB",
    "GONOSUMDB",
    "GONOSUMCHECK",
    "GOINSECURE",
    "GOPRIVATE",
    "GOWORK",
    "GOVCS",
    "GODEBUG",
    "GOMODCACHE",
    "GCCGO",
    // Compilers.
    "CC",
    "CXX",
    "CPP",
    "LD",
    "AR",
    "AS",
    "NM",
    "RANLIB",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "MFLAGS",
    "GNUMAKEFLAGS",
    "ACLOCAL_PATH",
    "OMP_TOOL_LIBRARIES",
    "CUDA_INJECTION32_PATH",
    "CUDA_INJECTION64_PATH",
    // The C library's data.
    "LOCPATH",
    "NLSPATH",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TERMCAP",
    "TERMPATH",
    "TZDIR",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RES_OPTIONS",
];

/// Common members of refused families that select neither code nor files.
const HARMLESS: &[&str] = &[
    "NODE_ENV",
    "MIX_ENV",
    "CGO_ENABLED",
    "CARGO_TERM_COLOR",
    "DOTNET_NOLOGO",
    "DOTNET_CLI_TELEMETRY_OPTOUT",
    "PYTHONUNBUFFERED",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONFAULTHANDLER",
];

/// Whether a name is valid for a variable.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|it: char| it.is_ascii_digit())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
}

/// Whether a variable of this name changes how other programs run.
fn is_refused(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let listed =
        DENIED_VARS.contains(&upper.as_str()) || DENIED_PREFIXES.iter().any(|prefix| upper.starts_with(prefix));
    listed && !HARMLESS.contains(&upper.as_str())
}

/// Refuses variables that would make other programs run the sender's code.
pub(crate) fn check(given: &[(String, String)]) -> Result<()> {
    for (name, value) in given {
        if !is_name(name) {
            return Err(Error::failed(format!(
                "`{}` is not a name for an environment variable; use letters, digits and underscores",
                name.escape_debug()
            )));
        }
        if value.contains('\0') {
            return Err(Error::failed(format!(
                "the value of the environment variable `{name}` has a NUL character in it, which no program takes; remove it"
            )));
        }
        if is_refused(name) {
            return Err(Error::denied(format!(
                "the environment variable `{name}` is not accepted, because it changes how other programs run; \
                 set it inside the command if the command needs it"
            )));
        }
    }
    Ok(())
}

/// Returns an error for an entry of the inherited list that cannot work.
pub(crate) fn check_inherited(names: &[String]) -> Result<()> {
    for name in names {
        if !is_name(name.strip_suffix('*').unwrap_or(name)) {
            return Err(Error::failed(format!(
                "`{}` is not a name for an environment variable; write a name, or the beginning of names and `*`",
                name.escape_debug()
            )));
        }
        if SET_HERE.contains(&name.as_str()) {
            return Err(Error::failed(format!(
                "the sandbox sets the environment variable `{name}` itself; remove it from the inherited variables"
            )));
        }
    }
    Ok(())
}

/// The variables of Helve's environment that this list names.
pub(crate) fn inherited(names: &[String]) -> impl Iterator<Item = (String, String)> {
    let is_listed = |name: &str| {
        names.iter().any(|listed| match listed.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == listed,
        })
    };
    env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(move |(name, _)| is_listed(name))
}

/// The whole environment of a command, sorted by name.
pub(super) fn build(
    settings: &SandboxConfig,
    home: &Path,
    temporary: &Path,
    path: &[PathBuf],
    terminal: bool,
    given: &[(String, String)],
) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: String| match all.iter_mut().find(|(it, _)| it == name) {
        Some(slot) => slot.1 = value,
        None => all.push((name.to_owned(), value)),
    };
    let usual = INHERITED_VARS.map(str::to_owned);
    inherited(&usual).chain(inherited(&settings.inherited)).for_each(|(name, value)| set(&name, value));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let joined: Vec<_> = path.iter().map(|dir| text(dir)).collect();
    set("PATH", joined.join(":"));
    set("HOME", text(home));
    set("TMPDIR", text(temporary));
    set("SHELL", "/bin/sh".to_owned());
    set("TERM", if terminal { "xterm-256color" } else { "dumb" }.to_owned());
    for (name, value) in FIXED_VARS {
        set(name, value.to_owned());
    }
    for (name, value) in settings.env.iter().chain(given) {
        set(name, value.clone());
    }
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str) -> String {
        match check(&[(name.to_owned(), "x".to_owned())]) {
            Ok(()) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_that_run_code_are_refused() {
        for name in [
            "LD_PRELOAD",
            "ld_preload",
            "BASH_ENV",
            "ENV",
            "GIT_SSH_COMMAND",
            "GIT_CONFIG_COUNT",
            "NODE_OPTIONS",
            "PYTHONPATH",
            "PYTHONWARNINGS",
            "PATH",
            "JDK_JAVA_OPTIONS",
            "JAVA_TOOL_OPTIONS",
            "_JAVA_OPTIONS",
            "MAVEN_OPTS",
            "GRADLE_OPTS",
            "DOTNET_STARTUP_HOOKS",
            "COMPlus_Profiler",
            "CORECLR_PROFILER_PATH",
            "GLIBC_TUNABLES",
            "LUA_INIT",
            "LUA_INIT_5_4",
            "LUA_CPATH_5_3",
            "OPENSSL_CONF",
            "OPENSSL_MODULES",
            "PHP_INI_SCAN_DIR",
            "PHPRC",
            "GOFLAGS",
            "GOTOOLCHAIN",
            "SSH_ASKPASS",
            "RUBYOPT",
            "PERL5OPT",
            "PERL_MM_OPT",
            "npm_config_script_shell",
            "XDG_CONFIG_HOME",
            "MAKEFLAGS",
            "CC",
            "LESSOPEN",
            "MANPAGER",
            "PYTEST_ADDOPTS",
            "DYLD_INSERT_LIBRARIES",
            "TAR_OPTIONS",
            "RSYNC_RSH",
        ] {
            assert!(said(name).starts_with(&format!("the environment variable `{name}` is not accepted")), "{name}");
        }
        assert_eq!(said("A B"), "`A B` is not a name for an environment variable; use letters, digits and underscores");
        for name in [
            "CI",
            "NODE_ENV",
            "RUST_LOG",
            "RUST_BACKTRACE",
            "PYTHONUNBUFFERED",
            "GOOS",
            "PORT",
            "DATABASE_URL",
            "AWS_REGION",
        ] {
            assert_eq!(said(name), "accepted", "{name}");
        }
        assert_eq!(
            check(&[("CI".to_owned(), "a\0b".to_owned())]).unwrap_err().to_string(),
            "the value of the environment variable `CI` has a NUL character in it, which no program takes; remove it"
        );
    }

    #[test]
    fn nothing_of_the_engine_gets_in_unasked() {
        let path = [PathBuf::from("/usr/bin")];
        let settings = SandboxConfig::default();
        let given = [("CI".to_owned(), "1".to_owned())];
        let built = build(&settings, Path::new("/home/u"), Path::new("/tmp"), &path, false, &given);
        let names: Vec<_> = built
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !INHERITED_VARS.contains(name) && !name.starts_with("LC_"))
            .collect();
        assert_eq!(
            names.join(" "),
            "CI DEBIAN_FRONTEND GCM_INTERACTIVE GIT_OPTIONAL_LOCKS GIT_PAGER GIT_TERMINAL_PROMPT HOME LESSCLOSE \
             LESSOPEN LESSSECURE MANPAGER PAGER PATH SHELL SYSTEMD_PAGER TERM TMPDIR"
        );
    }

    #[test]
    fn the_operator_extends_what_is_inherited() {
        let built = |names: &[&str]| {
            let inherited: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
            check_inherited(&inherited).unwrap();
            let settings = SandboxConfig { inherited, ..SandboxConfig::default() };
            build(&settings, Path::new("/home/u"), Path::new("/tmp"), &[], false, &[])
        };
        // Cargo sets these for every test.
        let (whole, other) = ("CARGO_PKG_NAME", "CARGO_PKG_VERSION");
        let has = |built: &[(String, String)], name: &str| built.iter().any(|(it, _)| it == name);
        let none = built(&[]);
        assert!(!has(&none, whole) && !has(&none, other));
        let one = built(&[whole, "NO_SUCH_VARIABLE"]);
        assert!(has(&one, whole) && !has(&one, other) && !has(&one, "NO_SUCH_VARIABLE"));
        let family = built(&["CARGO_PKG_*"]);
        assert!(has(&family, whole) && has(&family, other));
        for wrong in ["", "*", "A B", "A=1", "HOME", "PATH"] {
            assert!(check_inherited(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
