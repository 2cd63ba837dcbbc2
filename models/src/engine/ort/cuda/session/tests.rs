//! Sessions on the stand-in for the stream, on the runtime's CPU provider.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::tests::{Computes, HostStream, batch, bound, session, signature};
use super::*;
use crate::loader::tests::loader;
use crate::onnx::fixture::{Builder, D, matmul};

#[test]
fn memory_is_given_back_only_when_no_batch_needs_it() {
    let mut sizes = Sizes::default();
    sizes.ran(1000);
    sizes.trim();
    assert!(!sizes.shrink, "what warming-up took stays");
    sizes.ran(600);
    sizes.trim();
    assert!(!sizes.shrink, "more than half of it is needed");
    sizes.ran(100);
    sizes.trim();
    assert!(sizes.shrink && sizes.largest == 100);
}

/// A session on the runtime's CPU provider and a stand-in stream.
fn on_cpu(library: &OrtLibrary, graph: &Builder, stream: &Arc<HostStream>, binds: bool) -> CudaSession {
    let session = session(library, graph);
    CudaSession {
        model: "made".to_owned(),
        signature: signature(graph),
        binding: binds.then(|| bound(&session)),
        session,
        run: options_of_runs(0).unwrap(),
        sizes: Sizes::default(),
        rows: Rows::default(),
        records: true,
        _weights: None,
        stream: Arc::clone(stream) as _,
    }
}

#[test]
fn bound_or_not_a_session_answers_alike_and_gives_memory_back() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    let stream = Arc::new(HostStream::default());
    let mut sessions = [true, false].map(|binds| on_cpu(library, &graph, &stream, binds));
    for rows in [64, 1, 2, 8] {
        let [bound, plain] = sessions.each_mut().map(|session| {
            let outputs = session.run(&batch(rows, 3, 0.5)).unwrap();
            session.trim();
            outputs
        });
        assert_eq!(bound, plain, "{rows} rows");
    }
    for session in &sessions {
        assert!(session.run.shrinking.is_none(), "there is no GPU's arena, and the batch ran all the same");
    }
    let refused = sessions.each_mut().map(|session| session.run(&batch(1, 4, 0.0)).unwrap_err());
    assert!(refused.iter().all(|error| matches!(error, RunError::Input(_))), "{refused:?}");
    drop(sessions);
    assert_eq!(stream.held(), 0);
}

#[test]
fn a_binding_that_changes_answers_is_replaced_by_host_tensors() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    for (corrupts, fails) in [(false, false), (true, false), (false, true)] {
        let stream = Arc::new(HostStream::that_corrupts(corrupts));
        let fault = CudaFault {
            message: "cuMemcpyHtoDAsync: CUDA_ERROR_INVALID_VALUE (1)".to_owned(),
            sticky: false,
        };
        *stream.copy_fails.lock().unwrap() = fails.then_some(fault);
        let mut session = on_cpu(library, &graph, &stream, true);
        session.check_binding();
        assert_eq!(session.binding.is_none(), corrupts || fails);
        let mut plain = on_cpu(library, &graph, &stream, false);
        assert_eq!(session.run(&batch(2, 3, 1.0)), plain.run(&batch(2, 3, 1.0)));
    }
}

#[test]
fn a_lost_device_is_told_from_a_batch_that_failed() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let stream = Arc::new(HostStream::default());
    let mut session = on_cpu(library, &matmul(D::S("batch")), &stream, true);
    let mut say = |message: &str, sticky| {
        *stream.wait_fails.lock().unwrap() = Some(CudaFault { message: message.to_owned(), sticky });
        session.run(&batch(1, 3, 0.0)).unwrap_err()
    };
    let lost = say("cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED (719)", true);
    let expected = "model `made`: engine `ort`: cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED (719)";
    assert_eq!(lost, RunError::DeviceFailed(expected.to_owned()));
    assert!(matches!(say("cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)", false), RunError::Engine(_)));
    assert!(session.run(&batch(1, 3, 0.0)).is_ok());
}

#[test]
fn answers_outlive_session_and_gpulet() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    for binds in [true, false] {
        let stream = Arc::new(HostStream::default());
        let mut session = on_cpu(library, &graph, &stream, binds);
        let outputs = session.run(&batch(2000, 3, 0.0)).unwrap();
        drop(session);
        assert_eq!((Arc::strong_count(&stream), stream.held()), (1, 0), "the gpulet may close");
        assert_eq!(outputs[0].data.len(), 2000 * 2 * 4);
        let first = f32::from_le_bytes(outputs[0].data[..4].try_into().unwrap());
        assert_eq!(first, 13.0, "0*1 + 1*3 + 2*5");
    }
}

/// Sets the largest batch of a session's signature.
fn up_to(session: &mut CudaSession, max_batch: u32) {
    session.signature.max_batch = max_batch;
}

#[test]
fn every_size_runs_once_and_others_are_filled_up() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    for binds in [true, false] {
        let stream = Arc::new(HostStream::default());
        let mut session = on_cpu(library, &graph, &stream, binds);
        up_to(&mut session, 20);
        session.run_all_sizes().unwrap();
        assert_eq!((session.rows.largest(), session.signature.max_batch), (20, 20));
        assert_eq!((session.rows.fitting(5), session.rows.fitting(17)), (6, 20));
        let mut plain = on_cpu(library, &graph, &stream, false);
        for rows in 1..=20 {
            let batch = batch(rows, 3, 0.5);
            assert_eq!(session.run(&batch), plain.run(&batch), "{rows} rows");
        }
        let uneven = Batch { rows: 5, ..batch(3, 3, 0.0) };
        assert_eq!(session.run(&uneven), plain.run(&uneven), "what is not as it says is not filled up");
    }
}

#[test]
fn no_batch_is_larger_than_the_largest_that_ran() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    let stream = Arc::new(HostStream::default());
    let mut session = on_cpu(library, &graph, &stream, true);
    up_to(&mut session, 64);
    stream.fails_from(16 * 3 * 4, "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)", false);
    session.run_all_sizes().unwrap();
    assert_eq!(session.signature().max_batch, 8, "16 rows have no memory, and those that run have theirs");
    assert!(session.run(&batch(8, 3, 0.0)).is_ok());
}

#[test]
fn a_device_that_refuses_the_first_row_refuses_the_model() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    for (said, sticky) in [
        ("CUDNN failure 3002: CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH", false),
        ("cuMemHostAlloc: out of memory", false),
        ("cuMemcpyHtoDAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700)", true),
    ] {
        let stream = Arc::new(HostStream::default());
        let mut session = on_cpu(library, &graph, &stream, true);
        stream.fails_from(0, said, sticky);
        let refused = session.run_all_sizes().unwrap_err();
        assert!(refused.contains(said), "{refused}");
    }
}

/// What the fixture computes: rows of 3 numbers times a matrix.
fn product(input: &[u8]) -> Vec<u8> {
    let numbers = input.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
    let numbers: Vec<f32> = numbers.collect();
    let row = |row: &[f32]| {
        [0, 1].map(|column| {
            row[0] * (1 + column) as f32 + row[1] * (3 + column) as f32 + row[2] * (5 + column) as f32
        })
    };
    numbers.chunks_exact(3).flat_map(row).flat_map(f32::to_le_bytes).collect()
}

fn zeros(input: &[u8]) -> Vec<u8> {
    vec![0; input.len() / 3 * 2]
}

fn recorded(session: &CudaSession) -> usize {
    session.binding.as_ref().unwrap().recorded.len()
}

#[test]
fn every_size_is_recorded_and_answers_as_before() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    let stream = Arc::new(HostStream::that_computes(Some(product)));
    let mut session = on_cpu(library, &graph, &stream, true);
    up_to(&mut session, 8);
    session.run_all_sizes().unwrap();
    assert_eq!(recorded(&session), 6, "1, 2, 3, 4, 6 and 8 rows");
    let mut plain = on_cpu(library, &graph, &stream, false);
    for rows in [1, 2, 3, 4, 5, 6, 7, 8, 1] {
        let before = stream.launches.load(Ordering::Relaxed);
        let batch = batch(rows, 3, 0.25);
        assert_eq!(session.run(&batch), plain.run(&batch), "{rows} rows");
        assert_eq!(stream.launches.load(Ordering::Relaxed), before + 1, "{rows} rows");
        session.trim();
        assert!(!session.sizes.shrink, "recorded runs keep their memory");
    }
    assert_eq!(
        session.run(&batch(9, 3, 0.0)),
        plain.run(&batch(9, 3, 0.0)),
        "what is not recorded runs plainly"
    );
    drop((session, plain));
    assert_eq!((Arc::strong_count(&stream), stream.held()), (1, 0), "the gpulet may close");
}

#[test]
fn a_model_may_say_that_its_runs_are_not_recorded() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    let stream = Arc::new(HostStream::that_computes(Some(product)));
    let mut session = on_cpu(library, &graph, &stream, true);
    session.records = false;
    session.run_all_sizes().unwrap();
    assert_eq!((recorded(&session), stream.launches.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn what_cannot_be_recorded_or_answers_otherwise_runs_plainly() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    for computes in [None, Some(zeros as Computes)] {
        let stream = Arc::new(HostStream::that_computes(computes));
        let mut session = on_cpu(library, &graph, &stream, true);
        up_to(&mut session, 8);
        session.run_all_sizes().unwrap();
        assert_eq!(recorded(&session), 0);
        assert_eq!(session.signature.max_batch, 8, "it serves batches all the same");
        let mut plain = on_cpu(library, &graph, &stream, false);
        for rows in 1..=8 {
            let batch = batch(rows, 3, 0.5);
            assert_eq!(session.run(&batch), plain.run(&batch), "{rows} rows");
        }
    }
}

#[test]
fn where_a_change_of_size_takes_longer_than_a_batch_every_batch_is_padded() {
    let loader = loader();
    let Ok(library) = &loader.ort else { return };
    let graph = matmul(D::S("batch"));
    let stream = Arc::new(HostStream::that_plans_for(Duration::from_millis(50)));
    let mut session = on_cpu(library, &graph, &stream, true);
    up_to(&mut session, 8);
    session.run_all_sizes().unwrap();
    assert_eq!([1, 5, 8].map(|rows| session.rows.fitting(rows)), [8, 8, 8]);
    let mut plain = on_cpu(library, &graph, &stream, false);
    for rows in 1..=8 {
        let batch = batch(rows, 3, 0.5);
        assert_eq!(session.run(&batch), plain.run(&batch), "{rows} rows");
    }
}
