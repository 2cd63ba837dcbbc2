//! Whether the stages give the same outputs as the whole.

use anyhow::Context as _;
use models::engine::{Batch, Session};
use models::{Difference, largest_difference};
use serde::Serialize;

use super::pipeline::Pipeline;

/// What was compared, and the result.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Equality {
    /// Batches that were run, generated and recorded.
    pub generated: usize,
    pub recorded: usize,
    /// Batches of which all bits are the same.
    pub identical: usize,
    /// Largest difference, as a share of the largest value of its output. 0: all bits are the same.
    pub largest: f64,
    /// The output with the largest difference.
    pub output: Option<String>,
    /// What is allowed.
    pub tolerance: f64,
}

impl Equality {
    /// Runs batches through the stages and the whole.
    ///
    /// # Errors
    /// A batch that does not run, or outputs of other types or shapes.
    pub fn compare(
        &mut self,
        whole: &mut dyn Session,
        pipeline: &mut Pipeline,
        batches: &[Batch],
    ) -> anyhow::Result<()> {
        let signature = whole.signature().clone();
        for batch in batches {
            let known = whole.run(batch).context("the whole model")?;
            let given = pipeline.run(&signature, batch)?.outputs;
            match largest_difference(&known, &given).map_err(anyhow::Error::msg)? {
                None => self.identical = self.identical.saturating_add(1),
                // A difference of nothing is one of signs of zeros, or of bits of what is not a number.
                Some(Difference { output, share }) if self.output.is_none() || share > self.largest => {
                    (self.largest, self.output) = (share, Some(output));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Whether the stages may stand for the whole.
    pub fn holds(&self) -> bool {
        self.largest <= self.tolerance && (self.tolerance > 0.0 || self.output.is_none())
    }

    /// The result in words.
    pub fn words(&self) -> String {
        let batches = self.generated.saturating_add(self.recorded);
        let recorded = match self.recorded {
            0 => String::new(),
            count => format!(", {count} of them recorded"),
        };
        match &self.output {
            None => {
                format!("{batches} batches{recorded}: all bits of all outputs equal those of the whole model")
            }
            Some(output) => format!(
                "{batches} batches{recorded}, {} identical: largest difference {:.1e} of the largest value, in output `{output}` \
                 (tolerance {})",
                self.identical, self.largest, self.tolerance
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_tolerance_asks_for_every_bit() {
        let same = Equality { generated: 3, identical: 3, ..Equality::default() };
        assert!(same.holds());
        assert_eq!(same.words(), "3 batches: all bits of all outputs equal those of the whole model");
        let close =
            Equality { largest: 2e-6, output: Some("y".to_owned()), tolerance: 1e-5, recorded: 1, ..same };
        assert!(close.holds() && !Equality { tolerance: 1e-6, ..close.clone() }.holds());
        assert!(
            close
                .words()
                .starts_with("4 batches, 1 of them recorded, 3 identical: largest difference 2.0e-6")
        );
        let signs = Equality { largest: 0.0, tolerance: 0.0, ..close };
        assert!(!signs.holds(), "-0 and 0 have other bits");
    }
}
