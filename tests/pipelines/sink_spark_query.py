"""A query in a Spark of its own, from text files into a topic. It prints a line after each batch.

Arguments: brokers, topic, directory of the files, checkpoint.
"""

from __future__ import annotations

import sys

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from spark_fixtures import start_session


class Saying(StreamingQueryListener):
    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark\'s name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark\'s name
        sys.stdout.write(f"batch {event.progress.batchId}\n")
        sys.stdout.flush()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark\'s name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark\'s name
        pass


def main() -> None:
    bootstrap, topic, files, checkpoint = sys.argv[1:]
    spark = start_session()
    spark.streams.addListener(Saying())
    query = (
        spark.readStream.format("text")
        .option("maxFilesPerTrigger", 1)
        .load(files)
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
