"""Runs the server of moto, which handles one change at a time and has its services loaded when it listens.

moto checks a condition of DynamoDB and writes in two steps, on a thread for each connection. DynamoDB does both in one step.
It also removes a message of SQS by a copy of the queue's list, from which a message that is sent meanwhile is missing.
moto also imports a service at its first request. On a busy machine this takes seconds, longer than a client waits.
"""
import threading

from moto import server
from werkzeug.test import Client

one_at_a_time = threading.Lock()
application = server.DomainDispatcherApplication(server.create_backend_app)


def handle(environ, start_response):
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    # A receive waits for messages.
    if target.startswith(("DynamoDB", "AmazonSQS")) and target != "AmazonSQS.ReceiveMessage":
        with one_at_a_time:
            return application(environ, start_response)
    return application(environ, start_response)


for service, target in (("dynamodb", "DynamoDB_20120810.ListTables"), ("sqs", "AmazonSQS.ListQueues")):
    # The service of a request is a part of its signature, which moto does not verify here.
    signature = f"AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/{service}/aws4_request"
    headers = {"Authorization": signature, "X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.0"}
    answer = Client(handle).post("/", headers=headers, data="{}")
    assert answer.status_code == 200 and answer.text.startswith("{"), f"{service} did not answer: {answer.text}"
server.DomainDispatcherApplication = lambda create_app: handle
server.main()
