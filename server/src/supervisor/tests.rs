//! Lanes of this process whose thread panics: what clients see, and how the lane comes back.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gpulet_core::supervision::State;
use models::engine::ort::OrtMissing;
use oip::{Datatype, InferRequest, InputTensor, Shape, TensorData};

use crate::config::{Assignment, Config, Origin, Sources};
use crate::errors::{self, Retry};
use crate::reason::Reason;
use crate::serve::Startup;
use crate::service::{RequestContext, Service};

async fn service(folder: &Path, lanes: usize) -> Option<Arc<Service>> {
    let version = folder.join("m").join("1");
    std::fs::create_dir_all(&version).unwrap();
    let text = "max_batch = 4\n\
         inputs = [{ name = \"x\", datatype = \"FP32\", dims = [-1, 2] }]\n\
         outputs = [{ name = \"y\", datatype = \"FP32\", dims = [-1, 2] }]\n\
         time = { alpha_us = 100 }\n";
    std::fs::write(version.join("model.toml"), text).unwrap();
    let cores: Vec<usize> = gpulet::allowed_cores().unwrap().into_iter().take(lanes).collect();
    if cores.len() < lanes {
        return None;
    }
    let path = Assignment {
        path: "repository.path".to_owned(),
        raw: folder.display().to_string(),
        origin: Origin::Flag("--set"),
    };
    let config = Config::load(&Sources { flags: vec![path], ..Sources::default() }).unwrap();
    let lanes = cores.iter().map(|core| vec![*core]).collect();
    let service = Service::start(Startup { config, lanes, ort: Err(OrtMissing::default()) }).await.unwrap();
    service.load_at_start().await;
    assert!(service.ready());
    Some(service)
}

async fn ask(service: &Service) -> Result<(), Reason> {
    let data: Bytes = [1.5_f32, 2.5].iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into();
    let input = InputTensor {
        name: "x".to_owned(),
        datatype: Datatype::Fp32,
        shape: Shape::from_extents(&[1, 2]),
        data: TensorData::Inline(data.clone()),
        parameters: Vec::new(),
    };
    let request = InferRequest {
        model_name: "m".to_owned(),
        model_version: None,
        id: String::new(),
        parameters: Vec::new(),
        inputs: vec![input],
        outputs: None,
        binary_output: true,
    };
    let context = RequestContext { arrived: Instant::now(), transport_timeout: None };
    let answered = service.infer(request, context).await.map_err(|refusal| refusal.reason)?;
    assert_eq!(answered.response.outputs[0].0.data, data);
    Ok(())
}

/// The lane's thread panics, with a request in its mailbox that was given to it just before.
async fn breaks(service: &Service, lane: usize) -> Result<(), Reason> {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let broken = move |_| {
        let _ = wait.recv();
        panic!("planted");
    };
    service.catalog().lanes()[lane].remove(u32::MAX, broken).unwrap();
    let given = async {
        while service.catalog().router().snapshot().await.unwrap().models[0].in_flight == 0 {
            tokio::task::yield_now().await;
        }
    };
    let mut asked = std::pin::pin!(ask(service));
    let answer = tokio::select! {
        answer = &mut asked => Some(answer),
        () = given => None,
    };
    drop(go);
    match answer {
        Some(answer) => answer,
        None => asked.await,
    }
}

/// Waits until one life of a lane has ended and all lanes are up.
async fn came_back(service: &Service) {
    loop {
        let rows = service.supervisor().view().await.unwrap();
        let deaths: usize = rows.iter().map(|row| row.view.deaths).sum();
        assert!(deaths <= 1, "{deaths} deaths of one panic");
        if deaths == 1 && rows.iter().all(|row| matches!(row.view.state, State::Up { .. })) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_lane_comes_back_and_clients_are_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(folder.path(), 1).await.unwrap();
    let reason = breaks(&service, 0).await.unwrap_err();
    assert_eq!(reason, Reason::LaneDied);
    let row = errors::row(reason);
    assert_eq!(row.http.as_u16(), 503, "{reason:?}");
    assert_ne!(row.retry, Retry::No, "{reason:?}: whoever comes again is served");
    came_back(&service).await;
    assert_eq!(ask(&service).await, Ok(()));
    assert!(service.ready());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_is_replaced_and_no_client_notices() {
    let folder = tempfile::tempdir().unwrap();
    let Some(service) = service(folder.path(), 2).await else { return };
    assert_eq!(breaks(&service, 0).await, Ok(()));
    came_back(&service).await;
    assert_eq!(ask(&service).await, Ok(()));
    service.stop().await;
}
