// Verifies one webhook with the published JavaScript library: JSON on stdin, exit status 0 if good.
import { readFileSync } from "node:fs";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const request = JSON.parse(readFileSync(0, "utf8"));
try {
  new Webhook(request.secret).verify(request.body, request.headers);
} catch (error) {
  if (!(error instanceof WebhookVerificationError)) throw error;
  console.error(`refused: ${error.message}`);
  process.exit(1);
}
console.log("verified");
