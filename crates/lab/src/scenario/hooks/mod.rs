//! The cost of hooks: a server that calls a backend, compared with the server without a backend, or with a bare loop
//! that calls it.
//!
//! A figure is a row of [`FIGURES`] and a file. Compared measurements take turns within one run, because the machine's
//! speed changes by the second. A ratio is the median of its pairs.

mod calls;
mod common;
mod crowd;
mod outage;
mod slow;

use anyhow::Result;

use self::common::{HookResults, HookScale};
use crate::arguments::{HookFigure, HooksOptions, Options};
use crate::report::Results;

/// The function that measures one figure.
type HookMeasure = fn(&HookScale, &Options, &mut HookResults) -> Result<()>;

/// All figures, in the order in which they are printed.
const FIGURES: &[(HookFigure, HookMeasure)] = &[
    (HookFigure::Slow, slow::slow),
    (HookFigure::Connect, calls::connect),
    (HookFigure::Publish, calls::publish),
    (HookFigure::Return, crowd::crowd),
    (HookFigure::Outage, outage::outage),
];

/// One run of the scenario.
pub(super) fn hooks(arguments: &HooksOptions, options: &Options, results: &mut Results) -> Result<()> {
    let scale = if arguments.quick { HookScale::QUICK } else { HookScale::FULL };
    let mut found = HookResults::default();
    for (figure, measure) in FIGURES {
        if arguments.only.is_empty() || arguments.only.contains(figure) {
            if !options.quiet {
                eprintln!("  {figure:?}");
            }
            measure(&scale, options, &mut found)?;
        }
    }
    results.append(found.ratios);
    results.append(found.details);
    Ok(())
}
