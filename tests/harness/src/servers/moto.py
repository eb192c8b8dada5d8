"""Runs the server of moto, which handles one request for DynamoDB at a time.

moto checks a condition and writes in two steps, on a thread for each connection. DynamoDB does both in one step.
"""
import threading

from moto import server

one_at_a_time = threading.Lock()
handled = server.DomainDispatcherApplication.__call__


def handle(application, environ, start_response):
    if environ.get("HTTP_X_AMZ_TARGET", "").startswith("DynamoDB"):
        with one_at_a_time:
            return handled(application, environ, start_response)
    return handled(application, environ, start_response)


server.DomainDispatcherApplication.__call__ = handle
server.main()
