"""The Open Inference Protocol and the plain endpoints, asked as a client would."""

from __future__ import annotations

import concurrent.futures
import threading

import numpy as np
import pytest
from starlette.testclient import TestClient

import feasibly as fb
from feasibly.serve.asked import How
from feasibly.serve.desk import Desk
from feasibly.serve.refusal import Refused
from feasibly.serve.shelf import Served
from tests.proxies import trained, unseen


def infer(client: TestClient, x: np.ndarray, name: str = "grid3", kind: str = "FP64", **more):
    tensor = {"name": "x", "datatype": kind, "shape": list(x.shape), "data": x.ravel().tolist()}
    return client.post(f"/v2/models/{name}/infer", json={"inputs": [tensor], **more})


def outputs(reply) -> dict[str, np.ndarray]:
    assert reply.status_code == 200, reply.text
    return {t["name"]: np.array(t["data"]).reshape(t["shape"]) for t in reply.json()["outputs"]}


def test_health_and_metadata(client: TestClient) -> None:
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2").json()["name"] == "feasibly"
    about = client.get("/v2/models/grid3").json()
    problem = trained("grid3")[0].problem
    assert about["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1, problem.n_inputs]}]
    assert [each["name"] for each in about["outputs"]] == [
        "y", "objective", "max_equality", "max_inequality", "outcome",
    ]  # fmt: skip
    assert client.get("/v2/models/nobody").status_code == 404


@pytest.mark.parametrize("answer", ["mean", "conditioned", "polished", "solved", "auto"])
def test_inference_gives_what_predict_gives(client: TestClient, answer: str) -> None:
    proxy, data = trained("grid3")
    x, _, _ = unseen(proxy, data, 3)
    got = outputs(infer(client, x, parameters={"answer": answer, "tolerance": 1e-5}, id="a"))
    want = proxy.predict(x, answer, tolerance=1e-5)
    np.testing.assert_allclose(got["y"], want.y, atol=1e-9)
    np.testing.assert_allclose(got["objective"], want.objective)
    np.testing.assert_allclose(got["max_equality"], want.max_equality, atol=1e-9)
    assert list(got["outcome"]) == [outcome.name for outcome in want.outcome]


def test_answers_are_proved_on_request(client: TestClient) -> None:
    proxy, data = trained("toy")
    x, _, _ = unseen(proxy, data, 2)
    wanted = [{"name": "lower_bound"}, {"name": "proven_gap_percent"}]
    got = outputs(infer(client, x, "toy", parameters={"prove": True}, outputs=wanted))
    want = proxy.predict(x, prove=True)
    np.testing.assert_allclose(got["lower_bound"], want.lower_bound, rtol=1e-6, atol=1e-9)
    assert infer(client, x, "toy", outputs=wanted).status_code == 422
    plain = client.post("/models/toy/answer", json={"prove": True}).json()["rows"][0]
    assert plain["lower_bound"] <= plain["objective"] + 1e-9


def test_proofs_of_a_grid_are_prepared_beside_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they need takes minutes to make: until it is there, 503 for them and answers for everyone else."""
    served = Served("grid3", trained("grid3")[0])
    going = threading.Event()

    def make(proxy: fb.Proxy) -> None:
        going.wait(30)
        raise fb.FeasiblyError("this grid cannot be relaxed")

    monkeypatch.setattr(fb.Proxy, "prover", property(make))
    for _ in range(2):
        with pytest.raises(Refused, match="being made") as refused:
            served.check_prover()
        assert refused.value.status == 503
    assert served.predict(served.problem.nominal[None], How()).ok.all()
    going.set()
    assert served._maker is not None
    served._maker.join(30)
    with pytest.raises(Refused, match="cannot be relaxed"):
        served.check_prover()


def test_single_precision_in_and_out(client: TestClient) -> None:
    proxy, data = trained("grid3")
    x, _, _ = unseen(proxy, data, 2)
    reply = infer(client, x, kind="FP32", outputs=[{"name": "y"}, {"name": "rung"}])
    tensors = {t["name"]: t for t in reply.json()["outputs"]}
    assert list(tensors) == ["y", "rung"]
    assert tensors["y"]["datatype"] == "FP32"
    want = proxy.predict(x.astype(np.float32).astype(np.float64)).y
    np.testing.assert_array_equal(
        np.array(tensors["y"]["data"], dtype=np.float32), want.astype(np.float32).ravel()
    )


def test_numbers_that_are_not_finite_travel_as_null(client: TestClient) -> None:
    proxy, data = trained("grid3")
    x, _, _ = unseen(proxy, data, 2)
    rows = x.tolist()
    rows[0][1] = None
    tensor = {"name": "x", "datatype": "FP64", "shape": list(x.shape), "data": rows}
    reply = client.post("/v2/models/grid3/infer", json={"inputs": [tensor]})
    tensors = {t["name"]: t["data"] for t in reply.json()["outputs"]}
    assert tensors["outcome"] == ["NOT_FINITE_INPUT", "OK"]
    assert tensors["objective"][0] is None
    assert set(tensors["y"][: x.shape[1]]) == {None}
    assert tensors["objective"][1] == pytest.approx(float(proxy.predict(x[1]).objective[0]))


def test_plain_answers_by_name(client: TestClient) -> None:
    proxy, _ = trained("grid3")
    names = proxy.problem.input_names
    changed = proxy.problem.nominal.copy()
    changed[0] *= 1.05
    reply = client.post(
        "/models/grid3/answer", json={"inputs": {names[0]: changed[0]}, "answer": "auto"}
    ).json()
    want = proxy.predict(changed, "auto")
    (row,) = reply["rows"]
    assert row["outcome"] == "OK"
    assert row["outputs"] == pytest.approx(
        dict(zip(proxy.problem.output_names, want.y[0].tolist(), strict=True))
    )
    assert set(reply["seconds"]) == {"parse", "wait", "answer"}
    many = client.post("/models/grid3/answer", json={"inputs": [{}, {names[1]: None}]}).json()["rows"]
    assert [each["outcome"] for each in many] == ["OK", "NOT_FINITE_INPUT"]


def test_concurrent_requests_share_batches_and_get_their_own_rows(client: TestClient, desk: Desk) -> None:
    proxy, data = trained("grid3")
    x, _, _ = unseen(proxy, data, 32)
    want = proxy.predict(x).objective
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda row: outputs(infer(client, row[None]))["objective"][0], x))
    np.testing.assert_allclose(replies, want, rtol=1e-6)
    assert desk.batcher.waiting == 0


def test_many_rows_come_back_in_order() -> None:
    """More rows than a batch holds are answered in several."""
    from feasibly.serve.app import build_app
    from feasibly.serve.shelf import Shelf
    from tests.serve.conftest import make_desk, wait_until_ready

    proxy, _ = trained("grid3")
    x = fb.sample(proxy.problem, 40, seed=9)
    desk = make_desk(Shelf((), {"grid3": proxy}, warm=(1,)), batch_rows=16)
    with TestClient(build_app(desk, lambda error: None), base_url="http://127.0.0.1") as client:
        wait_until_ready(client)
        np.testing.assert_allclose(outputs(infer(client, x))["y"], proxy.predict(x).y, atol=1e-5)


FAULTS = {
    "no body": b"",
    "no JSON": b"{",
    "no object": b"[1]",
    "deep": b"[" * 2000,
    "no inputs": b"{}",
    "two inputs": b'{"inputs": [{}, {}]}',
    "another name": b'{"inputs": [{"name": "z"}]}',
    "integers": b'{"inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 4], "data": [1, 1, 1, 1]}]}',
    "a wrong shape": b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [4, 1], "data": [1, 1, 1, 1]}]}',
    "too few": b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 4], "data": [1, 1, 1]}]}',
    "words": b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 4], "data": ["1", 1, 1, 1]}]}',
    "truths": b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 4], "data": [true, 1, 1, 1]}]}',
    "negative": b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [-1, 4], "data": []}]}',
    "no rows": b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [0, 4], "data": []}]}',
    "a misspelt key": b'{"input": []}',
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_get_422_and_a_sentence(client: TestClient, name: str) -> None:
    reply = client.post("/v2/models/grid3/infer", content=FAULTS[name])
    assert reply.status_code == 422, reply.text
    assert len(reply.json()["error"]) > 10


@pytest.mark.parametrize(
    "parameters",
    [{"answer": "best"}, {"answer": 3}, {"tolerance": 0}, {"tolerance": "x"}, {"tolerance": None}, {"prove": 1},
     {"anwser": "auto"}],
)  # fmt: skip
def test_bad_parameters_get_422(client: TestClient, parameters: dict) -> None:
    x = trained("grid3")[0].problem.nominal[None]
    assert infer(client, x, parameters=parameters).status_code == 422
    plain = client.post("/models/grid3/answer", json=parameters)
    assert plain.status_code == 422, plain.text


def test_parameters_of_other_servers_change_nothing(client: TestClient) -> None:
    x = trained("grid3")[0].problem.nominal[None]
    assert infer(client, x, parameters={"content_type": "np"}).status_code == 200


def test_too_much_gets_413(client: TestClient) -> None:
    width = trained("grid3")[0].problem.n_inputs
    assert infer(client, np.ones((65, width))).status_code == 413
    long = client.post("/v2/models/grid3/infer", content=b" " * 200_001)
    assert long.status_code == 413
    assert "bytes" in long.json()["error"]
    chunked = client.post("/v2/models/grid3/infer", content=(b" " * 1000 for _ in range(300)))
    assert chunked.status_code == 413


def test_unknown_addresses_and_methods(client: TestClient) -> None:
    assert client.get("/nowhere").status_code == 404
    assert "error" in client.get("/nowhere").json()
    assert client.get("/v2/models/grid3/infer").status_code == 405


def test_metrics_count_rows_and_phases(client: TestClient) -> None:
    infer(client, trained("grid3")[0].problem.nominal[None])
    text = client.get("/metrics").text
    assert 'feasibly_rows_total{model="grid3",outcome="OK",rung="conditioned"}' in text
    for phase in ("parse", "wait", "answer", "write"):
        assert f'feasibly_phase_seconds_count{{phase="{phase}"}}' in text
    assert 'feasibly_model_ready{model="grid3"} 1.0' in text
