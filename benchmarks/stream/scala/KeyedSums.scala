// The running sum, and the last payload of each key, as Spark's own Scala users write them: transformWithState, one value
// state a key. No Python anywhere.
// Compiled by benchmarks/stream/scala_jar.py.

package holdfast.benchmarks

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.streaming._

case class Amount(key: Long, amount: Long)
case class Total(key: Long, total: Long)
case class Payload(key: Long, payload: Array[Byte])

class SumByKey extends StatefulProcessor[Long, Amount, Total] {
  @transient private var sum: ValueState[Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    sum = getHandle.getValueState[Long]("sum", Encoders.scalaLong, TTLConfig.NONE)

  override def handleInputRows(key: Long, rows: Iterator[Amount], timers: TimerValues): Iterator[Total] = {
    var total = sum.get() // read once: exists() would read it too; an absent one is 0
    while (rows.hasNext) total += rows.next().amount
    sum.update(total)
    Iterator.single(Total(key, total))
  }
}

// Written and never read: what an aggregation cannot leave out.
class LastByKey extends StatefulProcessor[Long, Payload, Payload] {
  @transient private var last: ValueState[Array[Byte]] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    last = getHandle.getValueState[Array[Byte]]("last", Encoders.BINARY, TTLConfig.NONE)

  override def handleInputRows(key: Long, rows: Iterator[Payload], timers: TimerValues): Iterator[Payload] = {
    var row = rows.next()
    while (rows.hasNext) row = rows.next()
    last.update(row.payload)
    Iterator.single(row)
  }
}

object KeyedSums {
  def totals(rows: DataFrame): DataFrame =
    rows
      .as[Amount](Encoders.product[Amount])
      .groupByKey(_.key)(Encoders.scalaLong)
      .transformWithState(new SumByKey, TimeMode.None(), OutputMode.Update())(Encoders.product[Total])
      .toDF()

  def lastPayloads(rows: DataFrame): DataFrame =
    rows
      .as[Payload](Encoders.product[Payload])
      .groupByKey(_.key)(Encoders.scalaLong)
      .transformWithState(new LastByKey, TimeMode.None(), OutputMode.Update())(Encoders.product[Payload])
      .toDF()
}
