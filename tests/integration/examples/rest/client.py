"""What Python's standard library sees of the demo service: ADDRESS SCENARIO."""
import http.client
import json
import socket
import sys
import threading

ADDRESS, SCENARIO = sys.argv[1:]
PATIENCE = 120
OF_THE_MOMENT = {"date", "set-cookie", "idempotent-replayed"}


def connect():
    return http.client.HTTPConnection(ADDRESS, timeout=PATIENCE)


def ask(connection, path, body, method="POST", **headers):
    """Status, headers in their order, bytes."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {"Content-Type": "application/json", **headers})
    response = connection.getresponse()
    listed = [(name.lower(), value) for name, value in response.getheaders()]
    return response.status, listed, response.read()


def kept(answer):
    status, headers, body = answer
    return status, [(name, value) for name, value in headers if name not in OF_THE_MOMENT], body


def is_replay(answer):
    return ("idempotent-replayed", "true") in answer[1]


def order(sku, **more):
    return json.dumps({"sku": sku, "qty": 1, **more}).encode()


def executions(sku):
    return json.loads(ask(connect(), f"/executions?sku={sku}", None, method="GET")[2])["count"]


def is_problem(answer, status, code):
    assert answer[0] == status, answer
    assert dict(answer[1])["content-type"] == "application/problem+json", answer
    problem = json.loads(answer[2])
    assert problem["code"] == code and problem["status"] == status, problem


def one_connection():
    connection = connect()
    body = order("one", cookie=True)
    first = ask(connection, "/orders", body, Idempotency_Key="k1")
    own = connection.sock
    assert first[0] == 201 and not is_replay(first), first
    for _ in range(3):
        again = ask(connection, "/orders", body, Idempotency_Key='"k1"')
        assert is_replay(again) and kept(again) == kept(first), (first, again)
        assert "set-cookie" not in dict(again[1]), again
    is_problem(ask(connection, "/orders", order("two"), Idempotency_Key="k1"), 422, "key-reused")
    assert connection.sock is own, "the connection was kept"
    # Refused before the body is read: the server may close the connection then.
    is_problem(ask(connect(), "/orders", body), 400, "missing-key")
    is_problem(ask(connect(), "/orders", body, Idempotency_Key="a,b"), 400, "invalid-key")
    assert (executions("one"), executions("two")) == (1, 0)


def chunks():
    body = order("chunks")
    first = ask(connect(), "/orders", body, Idempotency_Key="k1")
    pieces = (bytes([byte]) for byte in body)
    again = ask(connect(), "/orders", pieces, Idempotency_Key="k1")
    assert is_replay(again) and kept(again) == kept(first), (first, again)
    assert executions("chunks") == 1


def threads():
    many, body, answers = 40, order("threads", delay_ms=300), []
    together = threading.Barrier(many, timeout=PATIENCE)

    def client():
        connection = connect()
        connection.connect()
        together.wait()
        answers.append(ask(connection, "/orders", body, Idempotency_Key="k1"))

    clients = [threading.Thread(target=client) for _ in range(many)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    placed = [answer for answer in answers if answer[0] == 201 and not is_replay(answer)]
    assert len(answers) == many and len(placed) == 1, answers
    for answer in answers:
        if answer[0] != 201:
            is_problem(answer, 409, "in-flight")
            assert int(dict(answer[1])["retry-after"]) >= 1, answer
        else:
            assert kept(answer) == kept(placed[0])
    assert executions("threads") == 1


def head(key, length):
    lines = ["POST /orders HTTP/1.1", "Host: demo", "Content-Type: application/json", f"Idempotency-Key: {key}"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def broken_upload():
    body = order("broken")
    host, port = ADDRESS.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as half:
        half.sendall(head("k1", len(body)) + body[:5])
        # Half of it is there, and the key is free.
        placed = ask(connect(), "/orders", body, Idempotency_Key="k1")
        assert placed[0] == 201 and not is_replay(placed), placed
    assert executions("broken") == 1


def pipeline():
    host, port = ADDRESS.split(":")
    bodies = [order(f"pipe{number}", delay_ms=100 - 50 * number) for number in range(3)]
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as pipe:
        pipe.sendall(b"".join(head(f"k{number}", len(body)) + body for number, body in enumerate(bodies)))
        with pipe.makefile("rb") as answers:
            for number in range(3):
                assert answers.readline() == b"HTTP/1.1 201 Created\r\n"
                headers = http.client.parse_headers(answers)
                answer = json.loads(answers.read(int(headers["content-length"])))
                assert answer["sku"] == f"pipe{number}", answer


SCENARIOS = {each.__name__: each for each in (one_connection, chunks, threads, broken_upload, pipeline)}
SCENARIOS[SCENARIO]()
print(f"{SCENARIO}: held")
