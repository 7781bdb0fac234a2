"""Verifies one webhook with the published Python library: JSON on stdin, exit status 0 if good."""

import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

request = json.load(sys.stdin)
try:
    Webhook(request["secret"]).verify(request["body"], request["headers"])
except WebhookVerificationError as error:
    sys.exit(f"refused: {error}")
print("verified")
