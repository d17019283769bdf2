// The running sum as Spark's own Scala users write it: transformWithState, one value state a key. No Python anywhere.
// Compiled by benchmarks/stream/scala_jar.py.

package holdfast.benchmarks

import org.apache.spark.sql.{DataFrame, Encoders}
import org.apache.spark.sql.streaming._

case class Amount(key: Long, amount: Long)
case class Total(key: Long, total: Long)

class SumByKey extends StatefulProcessor[Long, Amount, Total] {
  @transient private var sum: ValueState[Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    sum = getHandle.getValueState[Long]("sum", Encoders.scalaLong, TTLConfig.NONE)

  override def handleInputRows(key: Long, rows: Iterator[Amount], timers: TimerValues): Iterator[Total] = {
    var total = if (sum.exists()) sum.get() else 0L
    while (rows.hasNext) total += rows.next().amount
    sum.update(total)
    Iterator.single(Total(key, total))
  }
}

object KeyedSums {
  def totals(rows: DataFrame): DataFrame =
    rows
      .as[Amount](Encoders.product[Amount])
      .groupByKey(_.key)(Encoders.scalaLong)
      .transformWithState(new SumByKey, TimeMode.None(), OutputMode.Update())(Encoders.product[Total])
      .toDF()
}
