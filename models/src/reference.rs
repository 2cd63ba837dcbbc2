//! A known input of a model and what a session gave for it: what further sessions are held against before they serve.

use oip::Tensor;

use crate::agreement::agree;
use crate::engine::{Batch, Session};
use crate::sample;

/// One row that runs, and its answer.
#[derive(Clone, Debug)]
pub struct Reference {
    input: Batch,
    outputs: Vec<Tensor>,
}

impl Reference {
    /// Asks a session for its answer to a sample row; `None`: it accepts no sample row.
    pub fn of(session: &mut dyn Session) -> Option<Self> {
        let (extent, outputs) = sample::first_that_runs(session)?;
        let input = sample::row(session.signature(), extent, 0)?;
        Some(Self { input, outputs })
    }

    /// The row.
    pub(crate) fn input(&self) -> &Batch {
        &self.input
    }

    /// Its answer.
    pub(crate) fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    /// Whether another session of the model gives the same.
    ///
    /// # Errors
    /// What it gave instead.
    pub fn verify(&self, session: &mut dyn Session) -> Result<(), String> {
        let outputs = session.run(&self.input).map_err(|error| format!("the known input failed: {error}"))?;
        agree(&self.outputs, &outputs).map_err(|how| format!("for the known input, {how}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RunError;
    use crate::{Dim, Signature, TensorSpec};
    use oip::Datatype;

    /// Gives its input times a factor; refuses to with none.
    struct Times(Option<f32>, Signature);

    impl Session for Times {
        fn run(&mut self, batch: &Batch) -> Result<Vec<Tensor>, RunError> {
            let factor = self.0.ok_or_else(|| RunError::Engine("planted".to_owned()))?;
            let input = batch.inputs[0].clone().unwrap();
            let times = |chunk: &[u8]| factor * f32::from_le_bytes(chunk.try_into().unwrap());
            let data: Vec<u8> =
                input.data.chunks_exact(4).flat_map(|chunk| times(chunk).to_le_bytes()).collect();
            Ok(vec![Tensor { name: "y".to_owned(), data: data.into(), ..input }])
        }

        fn signature(&self) -> &Signature {
            &self.1
        }

        fn engine(&self) -> &'static str {
            "test"
        }
    }

    fn session(factor: Option<f32>) -> Times {
        let spec = |name: &str| TensorSpec {
            name: name.to_owned(),
            datatype: Datatype::Fp32,
            dims: vec![Dim::Free, Dim::Fixed(3)],
            optional: false,
        };
        Times(factor, Signature { inputs: vec![spec("x")], outputs: vec![spec("y")], max_batch: 4 })
    }

    #[test]
    fn a_session_that_gives_something_else_is_told() {
        assert!(Reference::of(&mut session(None)).is_none());
        let reference = Reference::of(&mut session(Some(2.0))).unwrap();
        for same in [2.0, 2.000_1] {
            assert_eq!(reference.verify(&mut session(Some(same))), Ok(()));
        }
        for other in [2.5, f32::NAN] {
            let said = reference.verify(&mut session(Some(other))).unwrap_err();
            assert_eq!(said, "for the known input, output `y` differs");
        }
        let said = reference.verify(&mut session(None)).unwrap_err();
        assert_eq!(said, "the known input failed: planted");
    }
}
