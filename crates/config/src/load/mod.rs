//! Reads the configuration (file, environment, flags) into settings.
//!
//! [`tree`] holds the written values and their places; [`interpret`] converts them to settings. No step stops at the
//! first fault: a reading gathers all findings.

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

/// The sources of a configuration. Later ones override earlier ones.
#[derive(Default)]
pub struct Sources {
    /// The path of a TOML, YAML or JSON file. `None` = there is no file.
    pub file: Option<PathBuf>,
    /// The environment variables of the process, as names and values.
    pub variables: Vec<(String, String)>,
    /// The flags of the command line.
    pub flags: Flags,
    /// Sets keys without a value for a development server. `None` = this is not a development server.
    pub development: Option<DevelopmentSecrets>,
}

/// The environment variables of the process, without those that are not valid Unicode.
pub fn process_variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The outcome of a reading. It has a configuration only if no finding is an error.
pub struct ConfigOutcome {
    /// The configuration. `None` = it cannot be used; the findings say why.
    pub configuration: Option<Configuration>,
    /// All findings about the configuration, errors first.
    pub findings: Vec<Finding>,
    /// The keys that a source sets, in the order of their paths.
    pub written: Vec<WrittenKey>,
}

/// Reads, merges, interprets and checks a configuration. Secrets may be missing; [`read_to_serve`] requires them.
pub fn read(sources: &Sources, probes: &Probes) -> ConfigOutcome {
    read_and(sources, probes, |_, _, _| {})
}

/// As [`read`], but also refuses configurations that a server must not run with.
pub fn read_to_serve(sources: &Sources, probes: &Probes) -> ConfigOutcome {
    read_and(sources, probes, |file, settings, findings| {
        check::secrets::check(settings, findings);
        check::files::check(file, settings, findings);
        check::files::check_use(&(probes.start)(settings), findings);
    })
}

/// Reads a configuration and runs `check_more` on it. Its arguments are the file, if there is one, with whether the
/// file contains secrets, and the settings.
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
        let purpose = sources.development.as_ref().map(|secrets| secrets.purpose);
        configuration.settings.channel.accepts_unknown_namespaces = purpose == Some(DevelopmentPurpose::Demo);
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

/// The errors of a configuration as one text for an operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the configuration cannot be used:\n{}", .0.join("\n"))]
pub struct ConfigErrors(Vec<String>);

impl ConfigOutcome {
    /// The configuration and its warnings and notes.
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
