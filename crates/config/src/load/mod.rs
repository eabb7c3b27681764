//! From the written configuration (file, environment, flags) to the settings.
//!
//! [`tree`] holds what was written and where; [`interpret`] says what it means. Nothing stops at the first fault: a
//! reading gathers all its findings.

mod development;
pub(crate) mod environment;
mod file;
mod flags;
pub(crate) mod interpret;
mod json;
pub(crate) mod secrets;
pub(crate) mod tree;
mod variables;
mod written;
mod yaml;

use std::path::{Path, PathBuf};

pub use self::development::{DevelopmentPurpose, DevelopmentSecrets};
pub use self::flags::Flags;
pub use self::written::{WrittenKey, changed_keys};
use crate::check;
use crate::configuration::Configuration;
use crate::finding::{Finding, Severity};
use crate::probes::Probes;
use crate::settings::Settings;

/// All that a configuration is made of; later ones win.
#[derive(Default)]
pub struct Sources {
    /// A TOML, YAML or JSON file.
    pub file: Option<PathBuf>,
    /// The process's environment.
    pub variables: Vec<(String, String)>,
    /// What was typed.
    pub flags: Flags,
    /// Fill what is absent for a developer's machine.
    pub development: Option<DevelopmentSecrets>,
}

/// The process's environment, without variables that are not valid Unicode.
pub fn process_variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The outcome of a reading: a configuration only if no finding is an error.
pub struct ConfigOutcome {
    /// The configuration, if it can be used.
    pub configuration: Option<Configuration>,
    /// All that is to be said about it, errors first.
    pub findings: Vec<Finding>,
    /// The keys that were written, in the order of their paths.
    pub written: Vec<WrittenKey>,
}

/// Reads, merges, interprets and checks a configuration. Secrets may be missing: [`read_to_serve`] asks for them.
pub fn read(sources: &Sources, probes: &Probes) -> ConfigOutcome {
    read_and(sources, probes, |_, _, _| {})
}

/// As [`read`], and refuses what a server must not run with.
pub fn read_to_serve(sources: &Sources, probes: &Probes) -> ConfigOutcome {
    read_and(sources, probes, |file, settings, findings| {
        check::secrets::check(settings, findings);
        check::files::check(file, settings, findings);
        check::files::check_use(&(probes.start)(settings), findings);
    })
}

/// `check_more` checks what is left: the file, if there is one, with whether it holds secrets; the settings.
fn read_and(
    sources: &Sources,
    probes: &Probes,
    check_more: impl FnOnce(Option<(&Path, bool)>, &Settings, &mut Vec<Finding>),
) -> ConfigOutcome {
    let mut findings = Vec::new();
    let mut written = match &sources.file {
        Some(path) => file::read(path, &mut findings),
        None => tree::ConfigNode::empty_table(tree::Location::Defaults),
    };
    let has_secrets = check::files::has_secrets(&written);
    environment::apply(&sources.variables, &mut written, &mut findings);
    flags::apply(&sources.flags, &mut written);
    secrets::apply(&sources.variables, &mut written, &mut findings);
    if let Some(secrets) = &sources.development {
        development::fill(secrets, &mut written);
    }
    let mut configuration = interpret::interpret(&written, &mut findings);
    if let Some(configuration) = &mut configuration {
        variables::replace(configuration, &sources.variables, &mut findings);
    }
    if let Some(configuration) = &configuration {
        check::check(&configuration.settings, probes, &mut findings);
        check::unsafe_omissions::check(&written, &configuration.settings, &mut findings);
        check_more(sources.file.as_deref().map(|file| (file, has_secrets)), &configuration.settings, &mut findings);
    }
    for finding in findings.iter_mut().filter(|finding| finding.location.is_none()) {
        finding.location = written.location_of(&finding.text).filter(|location| *location != tree::Location::Defaults);
    }
    findings.sort_by_key(|finding| finding.severity);
    let is_usable = findings.iter().all(|finding| finding.severity != Severity::Error);
    ConfigOutcome { configuration: configuration.filter(|_| is_usable), findings, written: written::all(&written) }
}

/// The errors of a configuration, for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the configuration cannot be used:\n{}", .0.join("\n"))]
pub struct ConfigErrors(Vec<String>);

impl ConfigOutcome {
    /// The configuration and what was noted about it.
    ///
    /// # Errors
    /// All the errors in one text.
    pub fn into_result(self) -> Result<(Configuration, Vec<Finding>), ConfigErrors> {
        match self.configuration {
            Some(configuration) => Ok((configuration, self.findings)),
            None => {
                let errors = self.findings.iter().filter(|f| f.severity == Severity::Error);
                Err(ConfigErrors(errors.map(|f| format!("  {f}")).collect()))
            }
        }
    }
}
