#!/usr/bin/env python3
"""Receives webhooks, verifies and prints them: receiver.py SECRET [PORT [HOW MANY]]."""
import base64, hashlib, hmac, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

SECRET = base64.b64decode(sys.argv[1].removeprefix("whsec_"))
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 9000
seen = 0

def is_signed(headers, body):
    """Whether one of the signatures is right, and not old (standardwebhooks.com)."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
    is_fresh = abs(time.time() - int(headers["webhook-timestamp"])) < 300
    return is_fresh and any(hmac.compare_digest(wanted, given) for given in headers["webhook-signature"].split())

class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        global seen
        body = self.rfile.read(int(self.headers["content-length"]))
        good = is_signed(self.headers, body)
        print("verified" if good else "forged", self.headers["webhook-id"], body.decode(), flush=True)
        self.send_response(204 if good else 401)
        self.end_headers()
        seen += good

    def log_message(self, *_):
        pass

with HTTPServer(("127.0.0.1", PORT), Hook) as receiver:
    while len(sys.argv) < 4 or seen < int(sys.argv[3]):
        receiver.handle_request()
