"""One module per API: how its requests are written and what its answers mean. `APIS` is the registry, separate from the
code that the APIs share (`wire.api`), because every `--help` lists their names."""

APIS = {
    "completions": "inferometer.wire.apis.openai:COMPLETIONS",
    "chat": "inferometer.wire.apis.openai:CHAT",
    "responses": "inferometer.wire.apis.responses:API",
    "embeddings": "inferometer.wire.apis.pooling:EMBEDDINGS",
    "embeddings_chat": "inferometer.wire.apis.pooling:EMBEDDINGS_CHAT",
    "rerank": "inferometer.wire.apis.pooling:RERANK",
    "anthropic": "inferometer.wire.apis.anthropic:API",
    "tgi": "inferometer.wire.apis.tgi:API",
    "transcriptions": "inferometer.wire.apis.transcriptions:TRANSCRIPTIONS",
    "translations": "inferometer.wire.apis.transcriptions:TRANSLATIONS",
    "template": "inferometer.wire.apis.template:API",
}
